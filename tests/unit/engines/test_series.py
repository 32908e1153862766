"""Tests of which engines export metrics for Prometheus."""

from typing import Any

import pytest

from ome_operator.engines import series, servers

SGLANG = ["python3", "-m", "sglang.launch_server"]


@pytest.mark.parametrize(
    ("box", "flag"),
    [
        ({"command": SGLANG}, "--enable-metrics"),
        ({"command": SGLANG, "args": ["--tp=8", "--enable-metrics"]}, ""),
        ({"command": ["bash", "-c", "exec python3 -m sglang.launch_server --enable-metrics --tp 8"]}, ""),
        ({"command": SGLANG, "args": ["--enable-metrics-for-all-schedulers"]}, "--enable-metrics"),
        ({"command": ["vllm", "serve", "m"]}, ""),
        ({"command": ["my-engine"]}, ""),
        ({}, ""),
    ],
)
def test_missing_metrics_flag_of_engine_is_found(box: dict[str, Any], flag: str) -> None:
    assert series.missing_flag(box) == flag


def test_series_are_of_engines_that_are_known_and_have_their_prefix() -> None:
    found = series.known_series()
    assert set(found) - {"sglang-router"} <= {each.name for each in servers.known_servers()}
    prefixes = {"sglang": "sglang:", "vllm": "vllm:", "tensorrt-llm": "trtllm_", "sglang-router": "smg_"}
    for name, each in found.items():
        assert each.names and all(word.startswith(prefixes[name]) for word in each.names)
