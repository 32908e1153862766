"""Tests of an operator that reads no cluster-wide objects. The operator reports what it cannot know. It neither waits for
this knowledge nor acts as if it had it.
"""

from dataclasses import replace
from typing import Any

import pytest

from ome_operator.core.catalog.status import model_status
from ome_operator.core.observed.objects import Deps, Observed
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.reconcile.sync import sync
from ome_operator.core.selection.model_profile import profile_of
from ome_operator.core.selection.runtime import select
from tests.support import parts
from tests.support.parts import change_deps
from tests.support.shapes import Shape
from tests.support.simulator import START, World


def unread(deps: Deps) -> Deps:
    return change_deps(deps, sees_cluster=False, nodes={}, holders={})


def conditions(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {told["type"]: told for told in status["conditions"]}


def test_rollout_does_not_wait_for_model_nodes_if_nodes_are_unreadable() -> None:
    """An operator that does not read nodes rolls out an edit of the model without waiting. One that reads nodes waits with
    the same edit if no node has the model.
    """
    for deps, rolls in ((Shape(image="b").deps(), False), (unread(Shape(image="b").deps()), True)):
        world = World(Shape().service(), Shape().deps(), 3)
        world.settle()
        world.deps = replace(deps, holders={})
        world.settle()
        told = conditions(dict(world.service.status))
        assert (told["RolledOut"]["reason"] == "Complete") == rolls, told["RolledOut"]
        assert told["Ready"]["status"] == "True"
    assert (told["ModelReady"]["status"], told["ModelReady"]["reason"]) == ("Unknown", "NodesUnknown")
    assert "models.ome.io/clusterbasemodel.tiny=Ready" in told["ModelReady"]["message"]


def test_pods_are_not_treated_as_lost_if_nodes_are_unreadable() -> None:
    """An operator that does not read nodes does not treat pods as if their nodes were lost. Otherwise it would delete each
    terminating pod by force.
    """
    service, observed = Shape().service(), Observed()
    assert Snapshot(service, Deps(), observed, START).is_node_lost("n")
    assert not Snapshot(service, unread(Deps()), observed, START).is_node_lost("n")


@pytest.mark.parametrize(
    ("spec", "type_", "said"),
    [
        ({"model": {"name": "wide"}}, "ModelReady", "apply a BaseModel of this name in namespace team"),
        ({"runtime": {"name": "wide"}}, "RuntimeReady", "apply a ServingRuntime of this name in namespace team"),
        (
            {"model": {"name": "tiny", "fineTunedWeights": ["poet"]}},
            "ModelReady",
            "remove it from spec.model.fineTunedWeights",
        ),
        (
            {"acceleratorSelector": {"acceleratorClass": "h200"}},
            "RuntimeReady",
            "name labels of nodes in spec.engine.nodeSelector",
        ),
    ],
)
def test_unreadable_object_is_not_reported_as_missing(spec: dict[str, Any], type_: str, said: str) -> None:
    """An object that the operator may not read is not reported as missing. The user would apply it because of such a
    message, which would not help.
    """
    deps = unread(parts.deps(parts.model(), parts.simple()))
    told = conditions(sync(parts.service(engine={}, **spec), deps, Observed(), START).status)[type_]
    assert told["status"] == "False" and "does not exist" not in told["message"]
    assert "not read by this operator" in told["message"] and said in told["message"]


def test_model_status_says_that_nodes_are_not_read() -> None:
    told = conditions(model_status(parts.model(), (), None, START))["Ready"]
    assert (told["status"], told["reason"]) == ("Unknown", "NodesUnknown")


def test_runtime_is_chosen_without_accelerator_check_if_nodes_are_unreadable() -> None:
    spec = {**parts.simple(router=False).spec.dump(), "acceleratorRequirements": {"acceleratorClasses": ["h200"]}}
    fits = {"supportedModelFormats": [{"modelFormat": {"name": "safetensors"}, "autoSelect": True}]}
    runtime = parts.runtime("only", **{**spec, **fits})
    service = parts.service({"model": {"name": "tiny"}, "engine": {}})
    deps = parts.deps(parts.model(modelFormat={"name": "safetensors"}), runtime)
    seen = profile_of(next(iter(deps.models.values())), True, deps.well_known)  # type: ignore[arg-type]
    assert select(service, seen, deps).selected_runtime is None
    chosen = select(service, seen, unread(deps)).selected_runtime
    assert chosen is not None and chosen.name == "only"
