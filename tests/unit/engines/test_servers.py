"""Tests of the data files that describe the servers of engines."""

import pytest

from ome_operator.engines.flags import command_line, packaged_versions
from ome_operator.engines.servers import Server, known_servers, server, strategy, takes_adapters, takes_flags, with_adapters


@pytest.mark.parametrize("one", known_servers(), ids=lambda one: one.name)
def test_data_file_suffices_to_add_an_engine(one: Server) -> None:
    for start in one.starts:
        assert server({"command": ["/bin/bash", "-c", f"exec {' '.join(start)} --port 1"]}) == one
    lines = [command_line(f"{one.name}-{version}") for version in packaged_versions().versions_of(one.name)]
    assert lines, "the flags of at least one version are known"
    assert all(set(one.adapters) <= line.flags.keys() for line in lines)
    said = [flag for kind in one.parallel.values() for flag in kind]
    assert [flag for flag in said if all(line.find_flag(flag) is None for line in lines)] == [], "argparse also accepts --tp"


def test_lora_adapters_use_the_flag_format_of_each_engine() -> None:
    vllm = with_adapters({"command": ["vllm", "serve", "m"], "args": ["--enable-lora"]}, {"a": "/a", "b": "/b"})
    assert vllm["args"] == ["--enable-lora", "--lora-modules", "a=/a", "b=/b"]
    plain = with_adapters({"command": ["vllm", "serve", "m"]}, {"a": "/a"})
    assert plain["args"] == ["--enable-lora", "--lora-modules", "a=/a"]
    own = {"command": ["sglang", "serve"], "args": ["--lora-paths=x=/x"]}
    assert with_adapters(own, {"a": "/a"}) == own


def test_lora_adapters_are_pinned_if_the_engine_requires_it() -> None:
    """With data-parallel attention, LoRA adapters are pinned and a LoRA backend is set, because SGLang requires both. A
    backend that the runtime has chosen stays.
    """
    box = {"command": ["python3", "-m", "sglang.launch_server"], "args": ["--tp-size=2", "--attn-dp-size=2"]}
    item = '{"lora_name": "a", "lora_path": "/a", "pinned": true}'
    assert with_adapters(box, {"a": "/a"})["args"] == [*box["args"], "--lora-backend=triton", "--lora-paths", item]
    alone = {**box, "args": ["--attn-dp-size", "1"]}
    assert with_adapters(alone, {"a": "/a"})["args"] == [*alone["args"], "--lora-paths", "a=/a"]
    chosen = {**box, "args": [*box["args"], "--lora-backend", "triton_v2"]}
    assert with_adapters(chosen, {"a": "/a"})["args"] == [*chosen["args"], "--lora-paths", item]
    flags = command_line("sglang-0.5.23").flags
    assert {"--attn-dp-size", "--attention-data-parallel-size", "--lora-backend"} <= flags.keys()


def test_parallelism_is_parsed_from_engine_arguments() -> None:
    said = {"command": ["python3", "-m", "sglang.launch_server"], "args": ["--tp-size=32", "--attn-dp-size=32"]}
    assert strategy(said) == {"TP": "32", "DP": "32"}
    assert strategy({**said, "args": ["--tp=8", "--dp", "4"]}) == {"TP": "8", "DP": "4"}, "as `ome generate` writes them"
    assert strategy({**said, "args": ["--ep-size", "8", "--moe-a2a-backend=deepep"]}) == {"EP": "8"}
    shell = ["bash", "-c", "exec vllm serve m --data-parallel-size 16 --enable-expert-parallel --port 1"]
    assert strategy({"command": shell}) == {"DP": "16", "EP": ""}
    short = ["python3", "-m", "sglang.launch_server", "--tp=8", "--dp=4", "--ep=4"]
    assert strategy({"command": short}) == {"TP": "8", "DP": "4", "EP": "4"}, "as `ome generate` writes them"
    stages = ["vllm", "serve", "m", "--tensor-parallel-size=16", "--pipeline-parallel-size=2"]
    assert strategy({"command": stages}) == {"TP": "16", "PP": "2"}
    assert strategy({"command": ["sleep", "1"]}) == {}
    assert strategy({**said, "args": ["--tp=8", "--pp-size", "2"]}) == {"TP": "8", "PP": "2"}


def test_an_engine_without_a_flag_for_adapters_gets_none() -> None:
    box = {"command": ["trtllm-serve", "m"]}
    assert takes_flags(box) and not takes_adapters(box)
    assert with_adapters(box, {"a": "/a"}) == box
    shell = {"command": ["bash", "-c", "vllm serve m"]}
    assert server(shell) is not None and not takes_flags(shell) and not takes_adapters(shell)
