"""Tests that `ome lint` refuses a command line if and only if SGLang's own resolver does.

The results of the resolver are recorded in tests/data/resolver.yaml. If the package sglang is installed (`pip install
'.[engine]'`), the resolver runs again; `make e2e` runs the one in the image.
"""

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from ome_operator.engines.flags import command_line
from ome_operator.engines.requirements import ARCHITECTURE, VERSION, condition, requirements
from ome_operator.lint.finding import Severity
from tests.support import parts, resolver
from tests.support.linting import found

RECORD = resolver.record()
CHECKS = yaml.safe_load(resolver.CHECKS.read_text(encoding="utf-8"))
(KIMI,) = parts.read_documents(parts.ROOT / "config/models/moonshotai/Kimi-K2-Instruct.yaml")
UNSEEN: Mapping[str, tuple[str, ...]] = {
    "it requires a decode server": ("--disaggregation-decode-host-receive-threshold=0",),
    "another device than the image's": ("--enable-quant-communications --device=npu",),
    "the default of the chunk size, which the memory of the GPU decides": ("--page-size=1024 --attn-dp-size=8",),
    "the same, compared with SGLANG_PPLX_NUM_MAX_DISPATCH_TOKENS_PER_RANK": ("--moe-a2a-backend=pplx --attn-dp-size=2",),
    "the attention back end that SGLang chooses for the GPU": (
        "--enable-mis",
        "--enable-kv-cache-sharding",
        "--enable-kv-cache-sharding --enable-hierarchical-cache",
        "--enable-kv-cache-sharding --pp-size=2",
        "--enable-kv-cache-sharding --prefill-attention-backend=trtllm_mla --attn-cp-size=1",
        "--enable-unified-memory --dcp-size=2",
        "--prefill-only-disable-kv-cache --is-embedding --chunked-prefill-size=-1 --disable-radix-cache --attn-cp-size=1",
        "--speculative-algorithm=UNO --uno-lora-path=/draft --speculative-num-draft-tokens=4 --tp-size=1 --pp-size=1 "
        "--attn-dp-size=1 --attn-cp-size=1",
    ),
    "the GPU, which is a Blackwell": (
        "--attention-backend=trtllm_mla",
        "--decode-attention-backend=trtllm_mla",
        "--decode-attention-backend=cutedsl_mla",
        "--quantization=nvfp4_online",
        "--enable-mamba-cache-stochastic-rounding --mamba-ssm-dtype=float16",
    ),
    "layers of the model: windows, Mamba, sparse attention, experts in NVFP4": (
        "--enable-unified-memory --speculative-algorithm=EAGLE",
        "--enable-unified-memory --disaggregation-mode=decode --disaggregation-decode-enable-offload-kvcache "
        "--hicache-storage-backend=file",
        "--enable-hisparse --disable-radix-cache",
        "--enable-dsa-cache-layer-split --disaggregation-mode=prefill --enable-prefill-cp --cp-strategy=interleave "
        "--pp-size=1",
        "--moe-runner-backend=flashinfer_cutedsl",
    ),
    "whether the weights contain a draft model": (
        "--enable-unified-memory --speculative-algorithm=DSPARK",
        "--speculative-algorithm=DSPARK --attn-dp-size=2 --enable-dp-lm-head --attn-cp-size=1",
        "--speculative-algorithm=DSPARK --speculative-dspark-block-size=1 --speculative-num-draft-tokens=2",
        "--speculative-algorithm=DSPARK --pp-size=2 --disaggregation-mode=prefill",
    ),
    "SGLANG_DEEPEP_V2_NUM_MAX_DISPATCH_TOKENS_PER_RANK": (
        "--moe-a2a-backend=deepep_v2 --speculative-algorithm=STANDALONE --speculative-moe-a2a-backend=none",
    ),
    "files of the model, which are in another format": (
        "--load-format=expert_pack --tp-size=1 --ep-size=1 --attn-dp-size=1",
    ),
    "whether the model has an encoder": ("--enable-prefix-mm-cache --encoder-only", "--encoder-only"),
}
"""What would have to be known → lines that the resolver refuses and `ome lint` does not."""
WHY_UNSEEN = {line: why for why, lines in UNSEEN.items() for line in lines}


def refused(line: str, **spec: Any) -> list[str]:
    """Return the IDs of the errors that `ome lint` finds in a runtime with this command line. `spec` replaces the spec of
    the other model, without its config.json.
    """
    configs = resolver.other_configs()
    first = (line.split() or [""])[0]
    words = [word for word in resolver.argv(line, resolver.DRAFT) if not word.startswith("--model-path=")]
    runner = {
        "name": "ome-container",
        "image": f"docker.io/lmsysorg/sglang:v{VERSION}",
        "command": ["python3", "-m", "sglang.launch_server", "--model-path=$(MODEL_PATH)", "--host=0.0.0.0"],
        "args": words,
        "ports": [{"name": "http", "containerPort": 30000}],
        "resources": {"limits": {"nvidia.com/gpu": 64}},
    }
    runtime = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "ClusterServingRuntime",
        "metadata": {"name": "rt"},
        "spec": {"engineConfig": {"runner": runner}},
    }
    service = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "s", "namespace": "n"},
        "spec": {
            "model": {"name": "other" if first in configs else "kimi-k2-instruct", "kind": "ClusterBaseModel"},
            "runtime": {"name": "rt", "kind": "ClusterServingRuntime"},
            "engine": {"minReplicas": 1},
        },
    }
    other = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "ClusterBaseModel",
        "metadata": {"name": "other"},
        "spec": {
            "storage": {"storageUri": "local:///mnt/other"},
            **(spec or {"modelConfiguration": configs.get(first, {})}),
        },
    }
    errors = [each for each in found([KIMI, other, runtime, service], whole=False) if each.rule.severity == Severity.ERROR]
    return sorted({each.rule.id for each in errors} - OF_PODS)


OF_PODS = {"refused", "memory-short", "memory-beside", "host-loopback", "nnodes-differ", "mode-alone", "port-differs"}
"""Rules about the pods around the command line, which the resolver does not see."""


def test_recorded_command_lines_cover_every_requirement() -> None:
    assert len(RECORD) > 200
    assert [line for line in resolver.lines() if line not in RECORD] == [], "python -m tests.support.resolver"


@pytest.mark.parametrize("line", RECORD)
def test_lint_refuses_exactly_what_the_resolver_refuses(line: str) -> None:
    ours, theirs = refused(line), RECORD[line]
    if line in WHY_UNSEEN:
        assert theirs and not ours, f"{WHY_UNSEEN[line]}: {ours}"
    else:
        assert bool(ours) == bool(theirs), f"lint: {ours or 'nothing'}; SGLang: {theirs or 'accepts it'}"


@pytest.mark.parametrize("row", requirements(), ids=lambda row: " ".join((*row.when, *row.needs)))
def test_each_requirement_is_violated_separately(row: resolver.Requirement) -> None:
    assert [line for line in resolver.violating_command_lines(row) if not RECORD[line]] == []
    flags = command_line(f"sglang-{VERSION}").flags
    named = [resolver.FLAGS.get(name, name) for name in (*row.when, *row.needs) if name != ARCHITECTURE]
    assert [flag for flag in named if flag not in flags] == []


def test_architecture_stated_only_in_the_spec_is_used() -> None:
    line = "gpt-oss-120b --attention-backend=flashinfer"
    assert refused(line, modelArchitecture="GptOssForCausalLM") == refused(line) == ["requirement-missing"]
    assert refused(line, modelArchitecture="Qwen3MoeForCausalLM") == []


def test_invalid_condition_raises_value_error() -> None:
    with pytest.raises(ValueError, match="sometimes is no condition"):
        condition("sometimes")


WITH_SGLANG = pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="the package sglang is not installed")


@WITH_SGLANG
@pytest.mark.timeout(1800)
def test_recorded_results_equal_those_of_the_resolver(tmp_path: Path) -> None:
    resolver.write_models(tmp_path)
    assert resolver.ask([sys.executable], str(tmp_path), list(RECORD)) == RECORD


def test_every_requirement_comes_from_a_covered_function() -> None:
    known = [(file, name) for file, functions in CHECKS["rules"].items() for name in functions]
    sources = {row.source for row in requirements()}
    assert [said for said in sources if not any(file in said and name in said for file, name in known)] == []


def test_documentation_has_one_heading_per_place_and_states_the_totals() -> None:
    sums = {kind: sum(sum(names.values()) for names in files.values()) for kind, files in CHECKS.items()}
    page = " ".join((parts.ROOT / "docs/engines.md").read_text(encoding="utf-8").split())
    assert set(sums) == {"rules", "model", "device", "sizes", "variables", "parser", "internal", "left"}
    total = f"the {sum(sums.values())} places at which the resolver refuses arguments."
    assert f"{total} Rules of `ome lint` cover {sums['rules']}" in page
    said = (f"{sums['model']} ", f"{sums['device']} ", f"{sums['sizes']} ", f"{sums['internal']} ", f"{sums['left']} ")
    assert [number for number in said if number not in page] == [] and sum(sums.values()) == 712


@WITH_SGLANG
def test_recorded_checks_equal_those_of_the_sglang_package() -> None:
    package = importlib.util.find_spec("sglang")
    assert package is not None and package.submodule_search_locations
    assert counted() == resolver.count_checks(Path(package.submodule_search_locations[0]) / "srt/arg_groups")


def counted() -> dict[str, dict[str, int]]:
    """Return file → function → number of places, over all headings."""
    found: dict[str, dict[str, int]] = {}
    for files in CHECKS.values():
        for file, functions in files.items():
            for name, places in functions.items():
                here = found.setdefault(file, {})
                here[name] = here.get(name, 0) + places
    return found
