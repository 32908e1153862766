"""Tests of services whose pods become ready but that cannot answer requests: the condition Advice states what is missing."""

from typing import Any

import pytest

from ome_operator.core.resolve.inputs import resolve
from tests.support import parts

APART = parts.simple(decoder=True)
ALONE = parts.simple()


def advice(runtime: Any, **components: Any) -> str:
    """Return the advice about a service with these components."""
    return "; ".join(resolve(parts.service(**components), parts.deps(parts.model(), runtime)).advice)


@pytest.mark.parametrize(
    ("components", "remedy"),
    [({"engine": {}}, "add decoder: {} and router: {}"), ({"engine": {}, "router": {}}, "add decoder: {}, or")],
)
def test_named_disaggregated_runtime_without_decoder_gives_advice(components: Any, remedy: str) -> None:
    """A runtime that the user names and that keeps prefill and decode apart needs a decoder, and the advice says so. The
    automatic choice of a runtime excludes such a runtime with the same message.
    """
    said = advice(APART, **components)
    assert "it separates prefill and decode, but the service has no decoder" in said and remedy in said


def test_disaggregated_service_without_router_gives_advice() -> None:
    assert "nothing pairs prefill and decode" in advice(APART, engine={}, decoder={})
    assert "config/runtimes/srt/kimi-k2-pd-rt.yaml" not in advice(APART, engine={}, decoder={})
    bare = parts.simple(decoder=True, router=False)
    assert "config/runtimes/srt/kimi-k2-pd-rt.yaml" in advice(bare, engine={}, decoder={})
    assert (parts.ROOT / "config/runtimes/srt/kimi-k2-pd-rt.yaml").is_file()
    command = ["python3", "-m", "sglang.launch_server"]
    sglang = {"runner": parts.container(command=command, args=["--port=30000"])}
    said = advice(parts.runtime(engineConfig=sglang, decoderConfig=sglang), engine={}, decoder={})
    assert said.endswith("add router: {}"), "the operator adds a router for SGLang"


@pytest.mark.parametrize(
    ("runtime", "components"),
    [
        (APART, {"engine": {}, "decoder": {}, "router": {}}),
        (ALONE, {"engine": {}}),
        (ALONE, {"engine": {}, "router": {}}),
        (APART, {"engine": {"runner": {"args": ["--port=30000"]}}}),
        (APART, {"engine": {"leader": {"containers": [parts.container(command=["serve"])]}}}),
    ],
)
def test_working_service_gets_no_advice(runtime: Any, components: Any) -> None:
    assert advice(runtime, **components) == ""
