"""Tests of which containers can send spans, and with which arguments."""

from typing import Any

import pytest

from ome_operator.engines.flags import packaged_versions
from ome_operator.engines.traces import trace_obstacle, with_tracing

FLAGS = ["--enable-trace", "--otlp-traces-endpoint=c:4317"]
SGLANG = ["python3", "-m", "sglang.launch_server"]


def box(image: str = "lmsysorg/sglang:v0.5.23", command: list[str] | None = None, *args: str) -> dict[str, Any]:
    return {"image": image, "command": SGLANG if command is None else command, "args": list(args)}


@pytest.mark.parametrize(
    "container",
    [
        box(),
        box("lmsysorg/sglang:v0.5.23-cu129"),
        box("lmsysorg/sglang:v0.5.10"),
        box("lmsysorg/sglang-router:v0.3.2", [], "--port=1"),
        box("lightseekorg/smg:1.13.0", ["python3", "-m", "smg.launch_router"], "--port=1"),
        box("lightseekorg/smg:1.13.0", [], "--port=1"),
        box("own:1", ["python3", "-m", "sglang_router.launch_router"], *FLAGS),
        box("own:1", ["/bin/sh", "-c", f"exec python3 -m sglang.launch_server {' '.join(FLAGS)}"]),
    ],
)
def test_supported_containers_can_get_trace_arguments(container: dict[str, Any]) -> None:
    assert trace_obstacle(container, {}) == ""


@pytest.mark.parametrize(
    ("container", "why"),
    [
        (box("vllm/vllm-openai:v0.17.1", ["vllm", "serve"]), "starts no known SGLang program"),
        (box("engine:1", [], "--port=30000"), "starts no known SGLang program"),
        (box("sglang:0.5.23", ["python3", "-m", "sglang_router.launch_server"]), "starts no known SGLang program"),
        (box("sglang:0.5.23", ["smg", "serve"]), "starts no known SGLang program"),
        (box("lmsysorg/sglang:v0.5.23", ["/bin/sh", "-c", "python3 -m sglang.launch_server"]), "a shell starts it"),
        (box("lmsysorg/sglang:v0.4.9.post2"), "SGLang 0.4.9.post2 does not support --enable-trace"),
        (box("lmsysorg/sglang:v0.5.1"), "not known whether SGLang 0.5.1 supports"),
        (box("lmsysorg/sglang:v0.99.0"), "not known whether SGLang 0.99.0 supports"),
        (box("own:1"), "does not state its version: annotate the component with ome.io/engine-version"),
        (box("lmsysorg/sglang-router:v0.2.1", []), "not known whether sglang-router 0.2.1 supports"),
        (box("lmsysorg/sglang:v0.5.23", ["python3", "-m", "sglang_router.launch_router"]), "does not state its version"),
        (box("lmsysorg/sglang:v0.5.23", ["python3", "-m", "smg.launch_router"]), "does not state its version"),
        (box("lightseekorg/smg:1.13.0", ["python3", "-m", "smg.serve"]), "starts no known SGLang program"),
    ],
)
def test_unsupported_containers_report_why_traces_are_impossible(container: dict[str, Any], why: str) -> None:
    assert why in trace_obstacle(container, {})


def test_version_annotation_replaces_the_image_version() -> None:
    own = box("own:1", ["python3", "-m", "sglang_router.launch_router"])
    assert trace_obstacle(box("own:1"), {"ome.io/engine-version": "0.5.23"}) == ""
    assert trace_obstacle(own, {"ome.io/engine-version": "v0.3.2"}) == ""


def test_trace_arguments_of_the_user_are_kept() -> None:
    assert with_tracing(box(), "c:4317")["args"] == FLAGS
    assert with_tracing({"image": "i"}, "c:4317")["args"] == FLAGS
    assert with_tracing(box("i", None, "--otlp-traces-endpoint", "mine:1"), "c:4317")["args"] == [
        "--otlp-traces-endpoint",
        "mine:1",
        "--enable-trace",
    ]
    assert with_tracing(box("i", None, *FLAGS), "other:1")["args"] == FLAGS


def test_flag_support_is_known_only_between_agreeing_versions() -> None:
    def takes(version: str) -> bool | None:
        return packaged_versions().accepts_flags("sglang", version, ("--enable-trace", "--otlp-traces-endpoint"))

    found = {version: takes(version) for version in ("", "0.4.8", "0.4.9.post2", "0.5.5", "0.5.6.post1", "0.5.9", "0.5.24")}
    assert found == {
        "": None, "0.4.8": None, "0.4.9.post2": False, "0.5.5": None, "0.5.6.post1": True, "0.5.9": True, "0.5.24": None
    }  # fmt: skip
