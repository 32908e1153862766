"""What `ome lint` refuses, SGLang's own resolver refuses, and what `ome lint` accepts, the resolver accepts.

The record of the resolver is tests/data/resolver.yaml. Where the package sglang is installed (`pip install '.[engine]'`),
the resolver is asked again; `make e2e` asks the one of the image.
"""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import yaml

from ome_operator.cookbook.library import published_config
from ome_operator.engines.flags import command_line
from ome_operator.engines.requirements import VERSION, condition, requirements
from ome_operator.lint.finding import Severity
from tests.support import parts, resolver
from tests.support.linting import found

RECORD = resolver.record()
CHECKS = yaml.safe_load(resolver.CHECKS.read_text(encoding="utf-8"))
(KIMI,) = parts.read(parts.ROOT / "config/models/moonshotai/Kimi-K2-Instruct.yaml")
UNSEEN = {
    "--disaggregation-decode-host-receive-threshold=0": "it requires a decode server",
    "--enable-quant-communications --device=npu": "another device than the image's",
    "--page-size=1024 --attn-dp-size=8": "the default of the chunk size, which the memory of the GPU decides",
    "--moe-a2a-backend=pplx --attn-dp-size=2": "the same, compared with SGLANG_PPLX_NUM_MAX_DISPATCH_TOKENS_PER_RANK",
    "--speculative-algorithm=DFLASH --pp-size=1 --speculative-draft-model-path=/draft": "the draft model's files",
}
"""Lines that the resolver refuses and `ome lint` does not → what would have to be known."""


def refused(line: str) -> list[str]:
    """Return the IDs of the errors that `ome lint` finds in a runtime with this command line."""
    words = [*resolver.BASE, *line.split()]
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
            "model": {"name": "kimi-k2-instruct", "kind": "ClusterBaseModel"},
            "runtime": {"name": "rt", "kind": "ClusterServingRuntime"},
            "engine": {"minReplicas": 1},
        },
    }
    errors = [each for each in found([KIMI, runtime, service], whole=False) if each.rule.severity == Severity.ERROR]
    return sorted({each.rule.id for each in errors} - OF_PODS)


OF_PODS = {"refused", "memory-short", "memory-beside", "host-loopback", "nnodes-differ", "mode-alone", "port-differs"}
"""Rules about the pods around the command line, which the resolver does not see."""


def test_the_record_has_the_lines_of_every_requirement() -> None:
    assert len(RECORD) > 200
    assert [line for line in resolver.lines() if line not in RECORD] == [], "python -m tests.support.resolver"


@pytest.mark.parametrize("line", RECORD)
def test_what_lint_refuses_the_resolver_refuses_and_the_reverse(line: str) -> None:
    ours, theirs = refused(line), RECORD[line]
    if line in UNSEEN:
        assert theirs and not ours, f"{UNSEEN[line]}: {ours}"
    else:
        assert bool(ours) == bool(theirs), f"lint: {ours or 'nothing'}; SGLang: {theirs or 'accepts it'}"


@pytest.mark.parametrize("row", requirements(), ids=lambda row: " ".join((*row.when, *row.needs)))
def test_each_need_counts_by_itself(row: resolver.Requirement) -> None:
    assert [line for line in resolver.broken(row) if not RECORD[line]] == []
    flags = command_line(f"sglang-{VERSION}").flags
    assert [name for name in (*row.when, *row.needs) if resolver.FLAGS.get(name, name) not in flags] == []


def test_a_condition_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="sometimes is no condition"):
        condition("sometimes")


WITH_SGLANG = pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="the package sglang is not installed")


@WITH_SGLANG
@pytest.mark.timeout(1800)
def test_the_record_is_what_the_resolver_says(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(published_config(resolver.MODEL)))
    assert resolver.ask([sys.executable], str(tmp_path), list(RECORD)) == RECORD


def test_every_requirement_comes_from_a_function_that_is_counted_as_covered() -> None:
    known = [(file, name) for file, functions in CHECKS["rules"].items() for name in functions]
    sources = {row.source for row in requirements()}
    assert [said for said in sources if not any(file in said and name in said for file, name in known)] == []


@WITH_SGLANG
def test_the_checks_are_those_of_the_package() -> None:
    package = importlib.util.find_spec("sglang")
    assert package is not None and package.submodule_search_locations
    counted: dict[str, dict[str, int]] = {}
    for files in CHECKS.values():
        for file, functions in files.items():
            counted.setdefault(file, {}).update(functions)
    assert counted == resolver.checks(Path(package.submodule_search_locations[0]) / "srt/arg_groups")
