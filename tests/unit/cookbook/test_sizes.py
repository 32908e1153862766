"""Tests of larger sizes: pipelines, ranks on many nodes, and attention shared by several GPUs within wide EP."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ome_operator.cookbook import fit
from ome_operator.cookbook.command import commands
from ome_operator.cookbook.layout import PlanProposal, plan
from ome_operator.cookbook.library import Library
from ome_operator.cookbook.manifests import manifests
from ome_operator.cookbook.request import RecipeRequest


def made(shelf: Library, **asked: Any) -> PlanProposal:
    return plan(RecipeRequest(**{"hardware": "h200", "model": "instruct", **asked}), shelf)


def test_sixteen_h20_gpus_are_the_minimum(shelf: Library) -> None:
    for asked in ({}, {"engine": "vllm", "strategy": "dp+ep"}, {"engine": "tensorrt-llm", "strategy": "tp+ep"}):
        assert made(shelf, hardware="h20", **asked).nodes == 2


def test_pipeline_stages_divide_experts_and_cache(shelf: Library) -> None:
    """With 61 layers in two stages, a GPU has the experts and the KV cache of at most 31 layers."""
    whole, halves = (made(shelf, engine="vllm", strategy=name, tp=16, **more) for name, more in TWICE)
    rooms = [fit.gpu_memory(one.served, one.hardware, one.roles[0], None) for one in (whole, halves)]
    experts = whole.served.weights.routed // 16
    assert rooms[0].weights - rooms[1].weights == experts - experts * 31 // 61
    assert rooms[1].tokens > rooms[1].cache // 70272 * 1.9
    assert [one.nodes for one in (whole, halves)] == [2, 4]


TWICE: tuple[tuple[str, dict[str, Any]], ...] = (("tp", {}), ("tp+pp", {"pp": 2}))


@pytest.mark.parametrize(
    ("asked", "shape"),
    [
        ({}, (2, 8, 2)),
        ({"hardware": "h20"}, (2, 8, 2)),
        ({"pp": 3}, (3, 8, 3)),
        ({"tp": 4, "pp": 2, "model": "thinking"}, (1, 4, 2)),
        ({"tp": 16}, (4, 16, 2)),
    ],
)
def test_pipeline_has_two_stages_or_the_requested_number(
    asked: dict[str, Any], shape: tuple[int, int, int], shelf: Library
) -> None:
    (role,) = made(shelf, engine="vllm", strategy="tp+pp", **asked).roles
    assert (role.nodes, role.tp, role.pp) == shape


@pytest.mark.parametrize("strategy", ["tp", "tp+pp"])
def test_each_node_starts_its_own_ranks_without_ray(strategy: str, shelf: Library) -> None:
    planned = made(shelf, engine="vllm", strategy=strategy, hardware="h100")
    first, second = commands(planned).split("\n\n")
    assert "--nnodes 2 \\\n  --node-rank 0 \\\n  --master-addr $MASTER_IP" in first and "--headless" not in first
    assert "--node-rank 1" in second and "--headless" in second
    assert "ray" not in first + second
    part = yaml.safe_load(manifests(planned).runtime)["spec"]["engineConfig"]
    assert "--master-addr=$(POD_IP)" in part["leader"]["runner"]["args"], "its own name may not be known yet"
    assert "--master-addr=$(LWS_LEADER_ADDRESS)" in part["worker"]["runner"]["args"]
    assert "--node-rank=$(LWS_WORKER_INDEX)" in part["worker"]["runner"]["args"]


def test_ranks_of_the_fourth_node_follow_those_of_three(shelf: Library, tmp_path: Path) -> None:
    """The computed ranks of the engines on the fourth node follow those of the first three nodes. The test runs the command,
    and the script of the pods, in a shell in which a stub that prints its arguments replaces vLLM.
    """
    program = tmp_path / "vllm"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    planned = made(shelf, engine="vllm", strategy="dp+ep", dp=32)
    worker = yaml.safe_load(manifests(planned).runtime)["spec"]["engineConfig"]["worker"]["runner"]
    for text, variable in ((commands(planned).split("\n\n")[1], "RANK"), (worker["args"][0], "LWS_WORKER_INDEX")):
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", variable: "3", "MASTER_IP": "10.0.0.1", "PORT": "13345"}
        done = subprocess.run(["bash", "-c", text], env=env, capture_output=True, text=True, check=False)
        assert "--data-parallel-start-rank 24 " in done.stdout, done.stderr
    assert worker["command"] == ["/bin/bash", "-c"]


def test_gpus_share_attention_inside_of_wide_ep(shelf: Library) -> None:
    """Several GPUs can share an attention rank within wide EP. With TP 4 inside EP 32, experts are spread over all 32 GPUs,
    and 8 attention ranks have their own requests.
    """
    plain, shared = (made(shelf, strategy="pd", tp=tp) for tp in (None, 4))
    assert [(role.tp, role.dp, role.attention_tp, role.ep) for role in shared.roles] == [(32, 8, 4, 32), (96, 24, 4, 96)]
    rooms = [fit.gpu_memory(one.served, one.hardware, one.roles[0], None) for one in (plain, shared)]
    rest = plain.served.weights.rest
    assert rooms[0].weights - rooms[1].weights == rest - rest // 4
    text = commands(shared)
    assert "--attn-dp-size 8" in text and "--chunked-prefill-size 32768" in text, "4096 on each of 8 ranks"
    assert "--max-running-requests 11520" in text, "480 on each of 24 ranks"


AGENTS: dict[str, Any] = {
    "strategy": "pd",
    "prefill_nodes": 8,
    "decode_nodes": 8,
    "prefill_groups": 4,
    "decode_batch": 40,
    "prefix_cache": True,
}


def test_nodes_of_a_role_are_divided_into_groups(shelf: Library) -> None:
    planned = made(shelf, **AGENTS)
    assert [(role.groups, role.nodes, role.ep) for role in planned.roles] == [(4, 2, 16), (1, 8, 64)]
    assert planned.nodes == 16 and planned.runtime_name == "kimi-k2-instruct-h200-pd4x16-64"
    *_, service = yaml.safe_load_all(manifests(planned).all)
    assert [service["spec"][name]["minReplicas"] for name in ("engine", "decoder")] == [4, 1]
    assert made(shelf, strategy="pd").published and not made(shelf, strategy="pd", nodes=64, prefill_groups=4).published
    *_, balancer = commands(planned).split("\n\n")
    assert balancer.count("--prefill http") == 4 and "$PREFILL4_NODE0:30000" in balancer and balancer.count("--decode") == 1


def test_prefill_uses_a_prefix_cache_on_request(shelf: Library) -> None:
    runtime = yaml.safe_load(manifests(made(shelf, **AGENTS)).runtime)["spec"]
    words = [runtime[name]["runner"]["args"] for name in ("engineConfig", "decoderConfig")]
    assert ["--disable-radix-cache" in each for each in words] == [False, True]
    assert "--chunked-prefill-size=131072" in words[0], "8192 on each of 16 ranks"
    assert {"--cuda-graph-bs-decode=40", "--max-running-requests=2560"} <= set(words[1]), "40 on each of 64 ranks"
    router = runtime["routerConfig"]["runner"]
    assert "--prefill-policy=cache_aware" in router["args"]
    assert "/smg:" in router["image"], "sglang-router 0.3.2 has no prefix tree for prefill and decode"
    assert router["command"] == ["python3", "-m", "smg.launch_router"]
    assert "python3 -m smg.launch_router" in commands(made(shelf, **AGENTS))
    plain = yaml.safe_load(manifests(made(shelf, strategy="pd")).runtime)["spec"]
    assert "--disable-radix-cache" in plain["engineConfig"]["runner"]["args"]
    assert "--prefill-policy=cache_aware" not in plain["routerConfig"]["runner"]["args"]


def test_experts_of_deepseek_r1_are_spread_over_twelve_nodes(shelf: Library) -> None:
    """DeepSeek R1 has 256 experts and 32 redundant copies. The 3 nodes of prefill have 11 experts on each GPU, and the 9
    nodes of decode have 4 on each, which is (256 + 32) / 72. The batch equals the published one.
    """
    planned = made(shelf, hardware="h100", model="r1", strategy="pd")
    assert [(role.nodes, role.ep, (256 + role.redundant) // role.ep) for role in planned.roles] == [(3, 24, 11), (9, 72, 4)]
    assert planned.published and planned.nodes == 12
    text = commands(planned)
    assert "--max-running-requests 18432" in text and "--cuda-graph-bs-decode 256" in text
    assert "--trust-remote-code" not in text and "--trust-remote-code" in commands(made(shelf, strategy="pd"))


def test_model_is_found_by_every_known_name(shelf: Library) -> None:
    """A model of the catalog is found under every name that it is known by. For example, the first announcement names
    Kimi-K2-Chat.
    """
    assert shelf.model("Kimi-K2-Chat") is shelf.model("kimi-ai/kimi-k2-chat") is shelf.model("Kimi-K2-Instruct")
    for alias, key in shelf.aliases.items():
        assert shelf.model(alias) is shelf.models[key]
