"""Tests of the operator's use of the rules: no advice for shipped and generated services, and no rejection except for
certain errors.
"""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.cli.app import app
from ome_operator.cli.live.cluster_from_manifests import build_cluster
from ome_operator.cli.manifests import read_manifests
from ome_operator.core.observed.objects import Observed
from ome_operator.core.reconcile.sync import sync
from ome_operator.core.status.conditions import MESSAGE_LIMIT
from ome_operator.engines import images
from ome_operator.lint import validator as judging
from ome_operator.lint.validator import REFUSING, Validator
from tests.support import yamls
from tests.support.command_lines import LINES, taken
from tests.support.linting import catalog
from tests.support.overlays import LINT, composed_file
from tests.support.parts import ROOT

CORPUS = sorted((LINT / "corpus").glob("*/*.yaml"))


def said(bodies: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the messages that the rules add at the first reconciliation of each service."""
    cluster = build_cluster([*catalog(), *bodies], model_agent=False)
    found = {}
    for kept in cluster.services():
        if isinstance(kept.parsed, InferenceService):
            without, judged = (
                sync(kept.parsed, replace(cluster.deps(), **more), Observed(), datetime(2026, 1, 1, tzinfo=UTC)).status
                for more in ({}, {"judge": Validator()})
            )
            known = {part for each in without["conditions"] for part in each["message"].split("; ")}
            messages = [each for each in judged["conditions"] if each["type"] in ("Advice", "RolledOut")]
            parts = [part for each in messages for part in each["message"].split("; ") if part not in known]
            found[kept.ref.name] = [part for part in parts if "are starting" not in part]
            assert all(len(each["message"]) <= MESSAGE_LIMIT for each in messages if each["type"] == "RolledOut")
    return found


def refused(bodies: list[dict[str, Any]]) -> bool:
    return any("is not rolled out" in part for parts in said(bodies).values() for part in parts)


def test_shipped_objects_get_no_advice_and_no_refusal() -> None:
    found = said(read_manifests([ROOT / "config"], "default"))
    assert len(found) > 20 and {name: parts for name, parts in found.items() if parts} == {}


@pytest.mark.parametrize("words", ["--strategy tp --tp 16 --nodes 4 --tool-call-parser", "--strategy pd --nodes 8"])
def test_generated_services_get_no_advice(words: str) -> None:
    made = CliRunner().invoke(app, ["generate", "--hardware", "h200", "--model", "instruct", *words.split(), "-o", "yaml"])
    bodies = [body for body in yaml.safe_load_all(made.stdout) if body["apiVersion"].startswith("ome.io")]
    assert list(said(bodies).values()) == [[]]


@pytest.mark.parametrize("path", sorted((LINT / "works").glob("*.yaml")), ids=lambda path: path.stem)
def test_working_configurations_are_not_refused(path: Path) -> None:
    assert not refused(read_manifests([composed_file(path)], "default"))


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_only_configurations_that_the_parser_rejects_are_refused(path: Path) -> None:
    assert not refused(read_manifests([composed_file(path)], "default")) or path.parent.name in REFUSING


def test_validator_refuses_most_of_the_corpus() -> None:
    mine = [path for path in CORPUS if path.parent.name in REFUSING]
    found = [path for path in mine if refused(read_manifests([composed_file(path)], "default"))]
    assert len(found) >= len(mine) * 0.6, set(mine) - set(found)


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_operator_refuses_exactly_what_the_sglang_parser_refuses(words: list[str]) -> None:
    """The operator refuses exactly the arguments that SGLang's own parser refuses. `make e2e` passes the same arguments to
    the parser in the image; the list `taken` contains its results.
    """
    runner = {
        "name": "ome-container",
        "image": "docker.io/lmsysorg/sglang:v0.5.23",
        "command": ["sglang", "serve", "--model-path=/model"],
        "args": [*words],
        "resources": {"limits": {"nvidia.com/gpu": 8}},
    }
    runtime = yamls.runtime("rt") | {"spec": {"engineConfig": {"runner": runner}}}
    bodies = [yamls.model("tiny"), runtime, yamls.service("team", "svc", "rt", "engine", model="tiny")]
    assert refused(bodies) == (not taken([*words]))


def test_mistake_in_several_roles_is_one_sentence_naming_them() -> None:
    """If prefill and decode contain the same mistake, the condition RolledOut states it in one sentence with both places."""
    runner = {"name": "ome-container", "image": "docker.io/lmsysorg/sglang:v0.5.23", "args": ["--tp-sise=8"]}
    runner |= {"command": ["sglang", "serve", "--model-path=/model"], "resources": {"limits": {"nvidia.com/gpu": 8}}}
    runtime = yamls.runtime("rt") | {"spec": {f"{role}Config": {"runner": runner} for role in ("engine", "decoder")}}
    bodies = [yamls.model("tiny"), runtime, yamls.service("team", "svc", "rt", "engine", "decoder", model="tiny")]
    told = [part for part in said(bodies)["svc"] if "Config.runner.args" in part]
    where = "(ClusterServingRuntime rt: spec.engineConfig.runner.args, spec.decoderConfig.runner.args)"
    assert len(told) == 1 and f"write --tp-size {where}" in told[0]


@pytest.mark.parametrize(
    ("image", "exact"),
    [
        ("lmsysorg/sglang:v0.5.23", True),
        ("lmsysorg/sglang:0.5.23-cu129", True),
        ("lmsysorg/sglang:v0.5.23-cu129-arm64@sha256:0", True),
        ("r:5000/sglang@sha256:0", True),  # as in the annotation
        ("r/sglang:stable", True),
        ("r/sglang:0.5.23-p3", False),
        ("r/sglang:team-0.5.23", False),
        ("r/sglang:0.5.23.post1", False),
        ("r/dynamo:1.2.0-sglang-v0.5.23", False),
    ],
)
def test_image_version_is_exact_only_for_official_tags(image: str, exact: bool) -> None:
    assert images.is_exact(image, "0.5.23") == exact


def test_unknown_engine_version_is_reported() -> None:
    (parts,) = said(read_manifests([composed_file(LINT / "corpus/version-unknown/newer.yaml")], "default")).values()
    assert any("the flags are not checked" in part for part in parts)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("blocks-divide/thirty-two", "LintErrors"),
        ("gpus-idle/*", "LintWarnings"),
        ("version-unknown/newer", "NoEffect"),
    ],
)
def test_advice_has_the_reason_of_the_most_severe_finding(case: str, reason: str) -> None:
    """The condition Advice gets the reason of the most severe finding. Reported: Advice had the reason NoEffect although
    one finding was about an engine that exits.
    """
    file = next(iter(sorted((LINT / "corpus").glob(f"{case}.yaml"))))
    bodies = read_manifests([composed_file(file)], "default")
    cluster = build_cluster([*catalog(), *bodies], model_agent=False)
    names = {body["metadata"]["name"] for body in bodies if body["kind"] == "InferenceService"}
    for kept in [one for one in cluster.services() if one.ref.name in names]:
        plan = sync(kept.parsed, replace(cluster.deps(), judge=Validator()), Observed(), datetime(2026, 1, 1, tzinfo=UTC))
        assert plan.status is not None
        assert [one["reason"] for one in plan.status["conditions"] if one["type"] == "Advice"] == [reason]


def test_validation_cache_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "KEPT", 3)
    judge = Validator()
    cluster = build_cluster(read_manifests([ROOT / "config"], "default"), model_agent=False)
    for kept in cluster.services():
        sync(kept.parsed, replace(cluster.deps(), judge=judge), Observed(), datetime(2026, 1, 1, tzinfo=UTC))
    assert judge.looked > 20 and len(judge._kept) == 3


def test_changed_model_or_gpus_are_validated_again() -> None:
    judge = Validator()
    cluster = build_cluster(read_manifests([ROOT / "config"], "default"), model_agent=False)
    service = next(kept.parsed for kept in cluster.services() if kept.ref.name == "kimi-k2-tp16")
    deps = replace(cluster.deps(), judge=judge)
    for _ in range(3):
        sync(service, deps, Observed(), datetime(2026, 1, 1, tzinfo=UTC))
    before = judge.looked
    annotated = replace(service, annotations={keys.LINT_IGNORE: "flag-unknown"})
    for changed in (service, annotated, replace(annotated, status={"conditions": []})):
        sync(changed, deps, Observed(), datetime(2026, 1, 1, tzinfo=UTC))
    assert judge.looked == before + 2, "only the annotation causes another check: of the refusals, and of all rules"
