"""Tests of which object decides whether preflight checks run, and which part of the mode belongs to a revision (decisions
2).
"""

from typing import Any

import pytest

from ome_operator import keys
from ome_operator.core.observed.objects import Manifest, Observed
from ome_operator.core.preflight.mode import mode, parse_mode
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.reconcile.sync import sync
from tests.support import parts
from tests.support.parts import change_deps
from tests.support.simulator import START

NOTE = keys.PREFLIGHT


def applied(service: Manifest, runtime: Manifest, **deps: Any) -> tuple[Plan, Manifest]:
    """Return the plan of the first pass, and its ControllerRevision."""
    bodies = [
        {"kind": "InferenceService", "apiVersion": keys.API_VERSION, **service},
        {"kind": "ClusterServingRuntime", "apiVersion": keys.API_VERSION, "metadata": {"name": "rt"}, "spec": runtime},
        {
            "kind": "ClusterBaseModel",
            "apiVersion": keys.API_VERSION,
            "metadata": {"name": "tiny"},
            "spec": {"storage": {"storageUri": "hf://a/b", "path": "/m/tiny"}, "modelFormat": {"name": "safetensors"}},
        },
    ]
    parsed, found = parts.apply_bodies(bodies)
    plan = sync(parsed, change_deps(found, **deps), Observed(), START)
    (revision,) = [each.manifest for each in plan.first if each.manifest["kind"] == "ControllerRevision"]
    return plan, revision


def service(note: str | None = None, engine: str | None = None) -> Manifest:
    written = {"annotations": {NOTE: engine}} if engine is not None else {}
    metadata = {"name": "svc", "namespace": "team", "annotations": {NOTE: note} if note is not None else {}}
    return {"metadata": metadata, "spec": {"model": {"name": "tiny"}, "runtime": {"name": "rt"}, "engine": written}}


def runtime(note: str | None = None) -> Manifest:
    config = {"runner": parts.container(args=["--x"]), "worker": {"size": 1}}
    return {"engineConfig": config, **({"annotations": {NOTE: note}} if note is not None else {})}


def box(revision: Manifest, part: str = "leader") -> Manifest | None:
    """Return the init container that runs the preflight check, from the engine's pod template `part` (leader or worker) in a
    stored revision. Return None if the template has no such container.
    """
    spec = revision["data"]["workloads"]["engine"][part]["spec"]["template"]["spec"]
    return next((each for each in spec.get("initContainers") or () if each["name"] == keys.PREFLIGHT_CONTAINER), None)


def said(revision: Manifest) -> str:
    """Return the mode that a revision stores."""
    found = box(revision)
    return next(each["value"] for each in found["env"] if each["name"] == "OME_PREFLIGHT_MODE") if found else "Off"


@pytest.mark.parametrize(
    ("of_service", "of_engine", "of_runtime", "default", "wanted"),
    [
        (None, None, None, "Off", "Off"),
        (None, None, None, "Warn", "Warn"),
        (None, None, "Require", "Off", "Require"),
        ("Off", None, "Require", "Warn", "Off"),
        ("warn", None, None, "Off", "Warn"),
        ("Off", "Require", "Off", "Off", "Require"),
        ("yes", None, None, "Warn", "Warn"),
    ],
)
def test_preflight_mode_of_service_takes_precedence(
    of_service: str | None, of_engine: str | None, of_runtime: str | None, default: str, wanted: str
) -> None:
    _, revision = applied(service(of_service, of_engine), runtime(of_runtime), preflight=default)
    assert said(revision) == wanted and (box(revision, "worker") is None) is (wanted == "Off")


def test_default_mode_of_the_chart_is_not_part_of_the_revision() -> None:
    names = {applied(service(), runtime(), preflight=mode)[1]["metadata"]["name"] for mode in ("Off", "Warn", "Require")}
    assert len(names) == 1
    told = {applied(service(note), runtime())[1]["metadata"]["name"] for note in (None, "Off", "Warn", "Require")}
    assert len(told) == 4, "the mode in the service is part of the revision"


def test_preflight_off_adds_nothing_to_revision() -> None:
    plan, revision = applied(service(), runtime())
    assert "preflight" not in revision["data"]["inputs"] and "reflight" not in str(plan.apply)


def test_invalid_preflight_mode_is_reported_as_advice() -> None:
    plan, revision = applied(service("yes"), runtime("no"))
    advice = next(each["message"] for each in plan.status["conditions"] if each["type"] == "Advice")
    assert f"annotation {NOTE} of the service is ignored: 'yes' is none of Off, Warn, Require" in advice
    assert "of spec of runtime rt is ignored: 'no'" in advice
    assert said(revision) == "Off"


def test_preflight_mode_is_parsed() -> None:
    assert [parse_mode(each) for each in ("Off", " require ", "WARN", "", "x", None, False)] == [
        "Off",
        "Require",
        "Warn",
        "",
        "",
        "",
        "",
    ]
    assert mode({}, "engine", "Warn") == "Warn"
