"""Tests that the output of `ome generate` and `ome plan` is accepted by a real API server, and becomes ready with the
operator.
"""

import itertools
import random
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from ome_operator.cli.app import app as ome
from ome_operator.cli.generate import app, bookshelf
from ome_operator.cookbook.layout import PlanProposal, plan
from ome_operator.cookbook.library import engine, engines
from ome_operator.cookbook.manifests import manifests
from ome_operator.cookbook.request import RecipeRefused, RecipeRequest
from tests.conftest import SOAK
from tests.support.rig import ROOT, Rig

MODEL = "kimi-k2-instruct"
SAMPLE = 60
"""Number of proposals that are sent to the API server; all of them with OME_SOAK=1."""


def answers(namespace: str) -> Iterator[PlanProposal]:
    """Yield a plan for every combination of hardware, model and strategy that is not refused, all for one namespace."""
    shelf = bookshelf()
    for name, versions in engines().items():
        for version in versions:
            strategies = engine(name, version).strategies
            for hardware, served, strategy in itertools.product(shelf.hardware, shelf.models, strategies):
                ask = RecipeRequest(
                    hardware=hardware, model=served, strategy=strategy, engine=name, version=version, name=namespace
                )
                with suppress(RecipeRefused):
                    yield plan(ask, shelf)


def test_api_server_accepts_all_generated_objects(rig: Rig, namespace: str) -> None:
    """Each distinct object of all plans passes a server-side dry run with strict field validation."""
    found = list(answers(namespace))
    chosen = found if SOAK else random.Random(7).sample(found, SAMPLE)
    bodies = [one for each in chosen for one in yaml.load_all(manifests(each).all, Loader=yaml.CSafeLoader)]
    distinct = {yaml.dump(one, Dumper=yaml.CSafeDumper) for one in bodies if one["kind"] != "Namespace"}
    said = rig.cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin="---\n".join(distinct)).splitlines()
    assert len(said) == len(distinct) > SAMPLE
    assert [line for line in said if not line.endswith("(server dry run)")] == []


def generated(name: str, *options: str) -> str:
    """Return the YAML that a user would pipe into kubectl."""
    made = CliRunner().invoke(app, ["--hardware", "h200", "--model", "instruct", "--name", name, *options, "-o", "yaml"])
    assert made.exit_code == 0
    return made.stdout


@pytest.fixture
def everywhere(rig: Rig) -> None:
    """Label every node as holding the model."""
    for node in rig.all("Node", ""):
        label = {f"models.ome.io/clusterbasemodel.{MODEL}": "Ready"}
        rig.patch("Node", "", node["metadata"]["name"], {"metadata": {"labels": label}})


def test_documented_plan_becomes_ready(rig: Rig, everywhere: None, tmp_path: Path) -> None:
    """The command of docs/sizing.md takes the lengths of requests as arguments, and its output is a service that becomes
    ready on simulated nodes.
    """
    page = (ROOT / "docs/sizing.md").read_text(encoding="utf-8")
    (words,) = re.findall(r'^plan="ome (plan [^"]+)"$', page, re.MULTILINE)
    (told,) = re.findall(r"agents\.yaml +# (.+)$", page, re.MULTILINE)
    assert told == "4 groups of 2 nodes for prefill, a group of 7 for decode"
    planned = CliRunner().invoke(ome, [*words.split(), "-o", "yaml"])
    assert planned.exit_code == 0, planned.output
    file = tmp_path / "agents.yaml"
    file.write_text(planned.stdout)
    linted = CliRunner().invoke(ome, ["lint", "-f", str(file), "--strict"])
    assert linted.exit_code == 0, linted.output
    try:
        rig.cluster.kubectl("apply", "-f", str(file))
        status = rig.ready(MODEL, MODEL, 60)["status"]
        assert {component: part["ready"] for component, part in status["components"].items()} == {
            "engine": "8/8", "decoder": "7/7", "router": "1/1",
        }  # fmt: skip
        assert [group["phase"] for group in status["groups"]] == ["Ready"] * 5
    finally:
        gone(rig, MODEL)


def test_generated_manifests_piped_into_kubectl_become_ready(rig: Rig, everywhere: None) -> None:
    """Manifests that `ome generate` writes become ready when they are piped into kubectl. Two copies of TP 16 behind a
    router, and a disaggregated service with two prefill groups, run at the same time on 12 of 16 nodes.
    """
    options = {
        "generated-tp": ("--strategy", "tp", "--tp", "16", "--nodes", "4", "--tool-call-parser"),
        "generated-pd": ("--strategy", "pd", "--prefill-nodes", "4", "--decode-nodes", "4", "--prefill-groups", "2"),
    }
    ready = {
        "generated-tp": {"engine": "4/4", "router": "1/1"},
        "generated-pd": {"engine": "4/4", "decoder": "4/4", "router": "1/1"},
    }
    try:
        for name, words in options.items():
            rig.cluster.kubectl("apply", "-f", "-", stdin=generated(name, *words))
        for name, parts in ready.items():
            service = rig.ready(name, name, 60)
            assert {component: part["ready"] for component, part in service["status"]["components"].items()} == parts
            assert rig.condition(name, name, "Advice") == {}
            pods = [one for one in rig.all("Pod", name) if one["metadata"]["labels"]["component"] != "router"]
            assert {one["spec"]["nodeSelector"]["nvidia.com/gpu.product"] for one in pods} == {"NVIDIA-H200"}
    finally:
        gone(rig, *options)


def gone(rig: Rig, *names: str) -> None:
    """Delete services, each in a namespace of the same name, and the runtimes that `ome generate` wrote for them."""
    for name in names:
        rig.delete("InferenceService", name, name)
    for name in names:
        rig.wait(f"{name} gone", lambda name=name: not rig.all("Pod", name), 60)
    for runtime in rig.all("ClusterServingRuntime", ""):
        if runtime["metadata"]["name"].startswith(names):
            rig.delete("ClusterServingRuntime", "", runtime["metadata"]["name"])
