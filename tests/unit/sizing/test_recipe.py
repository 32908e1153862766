"""Tests of the recipe of a plan: the manifests of its layout, or the reason why there are none; and of the sizes in config/
that were taken from a plan.
"""

import json
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from ome_operator.cli.app import app
from ome_operator.errors import UserError
from tests.support import parts

K2 = ("--model", "Kimi-K2-Instruct", "--hardware", "h200")
AGENTS = (*K2, "--nodes", "16", "--prefix-hit", "0.5", "--tpot", "50", "--workload")


def run(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def layouts(*words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("plan", *words, "-o", "json").stdout)["layouts"]
    return found


def sizes(text: str) -> dict[str, tuple[int, int, str]]:
    """Return, for each component in manifests, its number of groups, the nodes of a group, and its attention ranks."""
    bodies = [body for body in yaml.safe_load_all(text) if body]
    (runtime,) = [body["spec"] for body in bodies if body["kind"] == "ClusterServingRuntime"]
    (service,) = [body["spec"] for body in bodies if body["kind"] == "InferenceService"]
    out = {}
    for component in ("engine", "decoder"):
        part = runtime[f"{component}Config"]
        (ranks,) = [word.partition("=")[2] for word in part["runner"]["args"] if word.startswith("--attn-dp-size=")]
        out[component] = service[component]["minReplicas"], part.get("worker", {"size": 0})["size"] + 1, ranks
    return out


def planned(layout: dict[str, Any]) -> dict[str, tuple[int, int, str]]:
    """Return for a layout on nodes of 8 GPUs what `sizes` returns for manifests."""
    return {
        component: (side["workers"], side["gpus"] // side["workers"] // 8, str(side["dp"]))
        for component, side in (("engine", layout["prefill"]), ("decoder", layout["decode"]))
    }


@pytest.mark.parametrize("number", [1, 2, 4])
def test_planned_layout_becomes_manifests_with_its_sizes(number: int) -> None:
    found = layouts(*AGENTS, "30k/2k")[number - 1]
    written = run("plan", *AGENTS, "30k/2k", "--layout", str(number), "-o", "yaml")
    assert written.exit_code == 0 and found["generate"] in written.stderr
    assert sizes(written.stdout) == planned(found)
    again = run(*found["generate"].split()[1:], "-o", "yaml")
    assert again.stdout == written.stdout, "the command that the plan shows writes the same"


def test_combined_engines_become_manifests() -> None:
    (first, *_) = layouts(*K2, "--nodes", "1", "--workload", "2000/100")
    assert first["strategy"] == "together" and first["generate"].endswith("--strategy tp --tp 8 --nodes 1")
    assert run("plan", *K2, "--nodes", "1", "--workload", "2000/100", "-o", "yaml").stdout.startswith("# Kimi K2 Instruct")


@pytest.mark.parametrize(("model", "widest"), [("Kimi-K2-Thinking", 64), ("Kimi-K2-Instruct", 16)])
def test_plan_searches_the_tensor_parallel_sizes_that_generate_writes(model: str, widest: int) -> None:
    """`ome plan` proposes tensor parallelism up to the largest size that `ome generate` writes for the model. Reported:
    `ome plan` proposed no TP above 16, although `ome generate --tp 32` writes four nodes.
    """
    on = ("--model", model, "--hardware", "h100")
    found = layouts(*on, "--nodes", "8", "--workload", "2000/200")
    assert max(each["decode"]["tp"] for each in found if each["prefill"] is None) == widest
    for size in (32, 64):
        written = run("generate", *on, "--strategy", "tp", "--tp", str(size))
        assert (written.exit_code == 0) is (size <= widest), written.output


R1 = ("--nodes", "12", "--workload", "2000/100")
CUT = "Disaggregated recipes use expert parallelism over all GPUs of a worker, but decode does not (TP 1 DP 8 EP 1)."


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--model", "DeepSeek-R1", "--hardware", "h200", *R1),
            f"Layout 1 cannot be written as manifests. {CUT} --layout 2 is the best",
        ),
        (
            ("--model", "DeepSeek-R1", "--hardware", "b200", *R1, "--precision", "fp4"),
            "are fp8, but the plan assumes fp4: pass",
        ),
        (("--model", "DeepSeek-R1", "--hardware", "gb200", *R1), "The hardware gb200 is unknown"),
        (("--model", "Qwen3-235B", "--hardware", "h200", *R1), "There is no recipe for the model Qwen3-235B"),
        (
            (*K2, *R1[2:], "--engine", "trtllm", "--prefill", "2xDEP16", "--decode", "1xDEP64"),
            "tensorrt-llm 1.2.1 has no recipe",
        ),
        ((*K2, *R1, "--layout", "9999"), "layouts work: choose a lower number."),
    ],
)
def test_layout_without_manifests_gives_a_reason(words: tuple[str, ...], said: str) -> None:
    found = run("plan", *words, "-o", "yaml")
    assert isinstance(found.exception, UserError) and said in str(found.exception) and not found.stdout


def shipped(*files: str) -> str:
    return "---\n".join((parts.ROOT / "config" / file).read_text(encoding="utf-8") for file in files)


def test_the_runtime_for_agents_has_the_sizes_of_a_plan() -> None:
    """The runtime for agents in config/ has the sizes of a plan: its layout is among the best four for 30k/2k and the best
    for 50k/4k. Its batch is the number of requests that the cache of a rank holds.
    """
    found = sizes(shipped("runtimes/srt/kimi-k2-pd-agentic-rt.yaml", "samples/isvc/moonshotai/kimi-k2-pd-agentic.yaml"))
    medium, long = layouts(*AGENTS, "30k/2k"), layouts(*AGENTS, "50k/4k")
    assert found == planned(long[0]) and found in [planned(each) for each in medium[:4] if each["prefill"]]
    (chosen,) = [each for each in medium[:4] if each["prefill"] and planned(each) == found]
    assert "--decode-batch 40" in chosen["generate"]
    (job,) = [
        body for body in yaml.safe_load_all(shipped("samples/benchmark/kimi-k2-agentic.yaml")) if "Job" in body["kind"]
    ]
    assert max(job["spec"]["numConcurrency"]) == pytest.approx(chosen["prediction"]["concurrency"], rel=0.01)
