"""Tests of parsing a container's launch: program, version, arguments, variables."""

from typing import Any

import pytest

from ome_operator.engines.flags import packaged_versions
from ome_operator.engines.images import version
from ome_operator.engines.routers import SGLANG_ROUTER, SMG
from ome_operator.lint.launch import Launch, launch, number, read_launch, references

SGLANG = ["python3", "-m", "sglang.launch_server"]


def started(args: list[str], command: list[str] | None = None, image: str = "sglang:v0.5.23", **more: Any) -> Launch:
    box = {"image": image, "command": SGLANG if command is None else command, "args": args, **more}
    found = launch(box, {}, packaged_versions())
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("image", "program", "said"),
    [
        ("docker.io/lmsysorg/sglang:v0.5.23", "sglang", "0.5.23"),
        ("registry.corp:5000/sglang:0.5.23-p3", "sglang", "0.5.23"),
        ("lmsysorg/sglang:v0.5.23-cu129", "sglang", "0.5.23"),
        ("lmsysorg/sglang:v0.4.9.post2-cu126", "sglang", "0.4.9.post2"),
        ("lmsysorg/sglang:v0.5.6.post1-rocm700-mi30x", "sglang", "0.5.6.post1"),
        ("corp/llm:team-0.5.23", "sglang", "0.5.23"),
        ("corp/smg:1.2.0-sglang-v0.5.9", "sglang", "0.5.9"),
        ("corp/sglang:latest-cu129", "sglang", ""),
        ("corp/sglang@sha256:" + "0" * 64, "sglang", ""),
        ("corp/sglang:v0.5.23@sha256:" + "0" * 64, "sglang", "0.5.23"),
        ("corp:5000/sglang", "sglang", ""),
        ("lmsysorg/sgl-model-gateway:v0.3.2", SGLANG_ROUTER, "0.3.2"),
        ("lmsysorg/sglang:v0.5.23", SGLANG_ROUTER, ""),
        ("corp/smg:1.13.0", SGLANG_ROUTER, ""),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.2.1", "tensorrt-llm", "1.2.1"),
        ("", "sglang", ""),
    ],
)
def test_version_is_parsed_from_the_image(image: str, program: str, said: str) -> None:
    assert version(image, {}, program) == said
    assert version(image, {"ome.io/engine-version": "v9.9"}, program) == (said or "9.9"), "the tag takes precedence"


def test_arguments_are_parsed_like_by_the_engine_version() -> None:
    start = started(
        ["--tp", "16", "--attention-data-parallel-size=4", "--no-enable-tf32-matmul", "--context-length", "128k"]
    )
    assert (start.engine, start.version, start.whole_number("--tp-size"), start.whole_number("--attn-dp-size")) == (
        "sglang",
        "0.5.23",
        16,
        4,
    )
    assert start.whole_number("--context-length") == 128_000
    assert start.whole_number("--pp-size") == 1 and start.whole_number("--page-size") is None, "defaults of the version"
    assert not start.is_on("--enable-tf32-matmul") and start.last_argument("--enable-tf32-matmul")
    assert start.variable("SGLANG_DISAGGREGATION_WAITING_TIMEOUT") == "300"
    old = started(["--ep", "4"], image="sglang:v0.5.6.post1")
    assert old.whole_number("--ep-size") == 4, "another name for the same"


def test_known_variables_are_expanded_in_arguments() -> None:
    env = [{"name": "N", "value": "8"}, {"name": "RANK", "valueFrom": {}}, {"name": "T", "value": "$(N)"}]
    start = started(["--tp-size=$(N)", "--node-rank=$(RANK)", "--nnodes=$(GONE)"], env=env)
    assert start.whole_number("--tp-size") == 8 and start.whole_number("--node-rank") is None
    assert start.names == {"N", "RANK", "T"} and start.env["T"] == "8"
    assert references(start.words) == {"RANK", "GONE"}
    assert references(["$$(X)"]) == frozenset()


@pytest.mark.parametrize(
    ("command", "args", "engine", "tp"),
    [
        (
            ["/bin/bash", "-lc", "--"],
            ["python3 -m sglang.launch_server \\\n --tp-size 8 \\\n --host 0.0.0.0\n"],
            "sglang",
            8,
        ),
        (["sh", "-c"], ["# sglang serve --tp 2\nset -e\nexec sglang serve --tp $N; echo --tp 1"], "sglang", 4),
        (["bash", "-c", "sglang serve --tp ${N} && sleep 1"], [], "sglang", 4),
        (["sh", "-c"], ["exec bash -lc 'sglang serve --tp $N'"], "sglang", 4),
        (["python3", "-msglang.launch_server"], ["--tp=2"], "sglang", 2),
        (["python3", "-um", "sglang.launch_server"], ["--tp=2"], "sglang", 2),
        (["/opt/venv/bin/sglang", "serve"], ["--tp=2"], "sglang", 2),
        (["sglang", "serve"], ["--tp=2"], "sglang", 2),
    ],
)
def test_shell_script_arguments_are_read(command: list[str], args: list[str], engine: str, tp: int | None) -> None:
    start = started(args, command, env=[{"name": "N", "value": "4"}])
    assert (start.engine, start.whole_number("--tp-size")) == (engine, tp)


@pytest.mark.parametrize("script", ["sglang serve --tp 'open", 'sglang serve --api-key "open --tp 2'])
def test_a_script_with_an_open_quote_is_not_read(script: str) -> None:
    found = read_launch({"image": "sglang:v0.5.23", "command": ["bash", "-c", script]}, {}, packaged_versions())
    assert found.launch is None and not found.partly and found.why == "a quote in a script is not closed"


def test_a_switch_in_a_variable_is_off_only_if_the_engine_reads_it_as_false() -> None:
    known = {"A": "1", "B": "TRUE", "C": "0", "D": "False", "E": "$(X)"}
    env = [*({"name": name, "value": value} for name, value in known.items()), {"name": "F", "valueFrom": {}}]
    start = started([], env=env)
    assert {name for name in "ABCDEFG" if start.may_be_on(name)} == {"A", "B", "E", "F"}
    assert started([], envFrom=[{"configMapRef": {"name": "x"}}]).may_be_on("G")


def test_programs_that_take_a_model_without_a_flag() -> None:
    start = started(["serve", "--port", "8000", "/model", "--tp_size", "8"], ["trtllm-serve"], "tensorrt-llm:1.2.1")
    assert [given.values for given in start.arguments] == [("8000",), ("8",)]


def test_router_programs_are_recognized() -> None:
    for module in ("smg.launch_router", "smg", "sglang_router.launch_router"):
        assert started([], ["python3", f"-m{module}"], "smg:1.13.0").engine in (SGLANG_ROUTER, SMG)
    start = started(["--policy", "random"], ["python3", "-m", "sglang_router.launch_router"], "sgl-router:v0.3.2")
    assert (start.engine, start.version, start.text("--policy")) == (SGLANG_ROUTER, "0.3.2", "random")
    assert started(["--policy=random"], [], "sgl-model-gateway:v0.3.2").engine == SGLANG_ROUTER, "started by the image"
    assert (
        launch({"image": "smg:1.2", "command": ["smg", "serve"], "args": ["--tp-size=8"]}, {}, packaged_versions()) is None
    )


def test_unknown_program_is_not_parsed() -> None:
    assert launch({"image": "sglang:v0.5.23", "command": ["sleep"], "args": ["1"]}, {}, packaged_versions()) is None
    assert launch({}, {}, packaged_versions()) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("8192", 8192), ("8k", 8000), ("8Ki", 8192), ("1.5k", 1500), ("-1", -1), ("8.5", None), ("", None), ("$(N)", None)],
)
def test_number_argument_is_parsed(text: str, value: int | None) -> None:
    assert number(text) == value
