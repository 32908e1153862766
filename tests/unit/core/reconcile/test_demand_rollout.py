"""Tests of what a pass reports about the configurations of groups, and of the measured speeds after a rollout."""

from dataclasses import replace
from typing import Any

import pytest
from pytest import MonkeyPatch

from ome_operator import keys
from ome_operator.core.demand.facts import Configuration
from ome_operator.core.demand.task import DemandTask
from ome_operator.core.observed.objects import Manifest, Node
from ome_operator.core.reconcile.configurations import _template
from ome_operator.core.render import pod_template
from ome_operator.core.render.pod_template import PodFeature, RankContext
from tests.support import parts
from tests.support.demanded import BUSY, KNOWN, QUIET, Demanded, spec


def task(world: Demanded) -> DemandTask:
    """Return the task that the present pass reports to the autoscaler."""
    found = world.sync().demand
    assert found is not None
    return found


def configurations(world: Demanded) -> tuple[tuple[Configuration, ...], tuple[Configuration, ...]]:
    """Return the configurations of the prefill groups and of the decode groups."""
    found = task(world).fleet
    return found.prefill.configurations, found.decode.configurations


def edited(**decoder: Any) -> dict[str, Any]:
    """Return the spec of the service with other settings of decode."""
    return spec("Apply", role=decoder)


NEXT = {"runner": {"image": "engine:2"}}


def test_rollout_of_one_role_discards_measurements_of_that_role_only() -> None:
    world = Demanded(**spec("Apply"))
    before = configurations(world)
    assert [len(found) for found in before] == [1, 1]
    world.edited(**edited(**NEXT))
    after = configurations(world)
    assert after[0] == before[0], "its slice is new, and its pods are the same"
    assert len(after[1]) == 1 and after[1] != before[1]


def test_both_configurations_are_reported_in_order_during_a_rollout() -> None:
    surge: dict[str, Any] = {"rollout": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}
    world = Demanded(**edited(minReplicas=2), **surge)
    old = configurations(world)[1]
    world.edit(parts.service(**edited(minReplicas=2, **NEXT), **surge))
    seen = list[tuple[Configuration, ...]]()
    for _ in range(60):
        found = configurations(world)[1]
        serving = {pod.revision for pod in world.observed().pods if pod.component == "decoder" and pod.ready}
        assert not serving or len(found) <= len(serving), "a group that starts serves no request yet"
        if not seen or found != seen[-1]:
            seen.append(found)
        world.run(1)
    world.settle()
    new = configurations(world)[1]
    assert old != new and seen[0] == old and seen[-1] == new
    assert old + new in seen


@pytest.mark.parametrize("edit", [{"rollout": {"restartedAt": "2026-11-28T10:00:00Z"}}, {"router": {"minReplicas": 2}}])
def test_a_restart_and_an_edit_of_the_router_change_no_configuration(edit: dict[str, Any]) -> None:
    world = Demanded(**spec("Apply"))
    before, revision = configurations(world), task(world).revision
    world.edited(**{**spec("Apply"), **edit})
    assert configurations(world) == before
    assert (task(world).revision == revision) == ("router" in edit)


def _with_a_variable(pod: Manifest, _: RankContext) -> Manifest:
    main, *others = pod["containers"]
    return {**pod, "containers": [{**main, "env": [{"name": "NEW", "value": "1"}, *main.get("env", ())]}, *others]}


def _with_a_probe(pod: Manifest, _: RankContext) -> Manifest:
    main, *others = pod["containers"]
    return {**pod, "containers": [{**main, "startupProbe": {"tcpSocket": {"port": 1}}}, *others]}


def _with_a_field(pod: Manifest, _: RankContext) -> Manifest:
    return {**pod, "shareProcessNamespace": True}


@pytest.mark.parametrize("feature", [_with_a_variable, _with_a_probe, _with_a_field])
def test_pod_fields_added_by_a_later_operator_keep_the_measurements(feature: PodFeature, monkeypatch: MonkeyPatch) -> None:
    """If a later version of the operator adds fields to pods, the measured speeds stay valid. After an upgrade, an edit of
    decode and a restart render the pods of prefill again, too.
    """
    world = Demanded(**spec("Apply"))
    before, known = configurations(world), stored_pod(world)
    monkeypatch.setattr(pod_template, "FEATURES", (*pod_template.FEATURES, feature))
    world.edited(**edited(**NEXT))
    after = configurations(world)
    assert stored_pod(world) != known, "the pods of prefill have the addition"
    assert after[0] == before[0] and after[1] != before[1]
    world.edited(**spec("Apply"), rollout={"restartedAt": "2026-11-28T10:00:00Z"})
    assert configurations(world) == before


def stored_pod(world: Demanded) -> Any:
    """Return the pod spec of the prefill groups that exist."""
    (found,) = (
        child.manifest["spec"]["template"]["spec"]
        for (kind, name), child in world.children.items()
        if kind == "StatefulSet" and "engine" in name
    )
    return found


SAME_SPEED: list[dict[str, Any]] = [
    {"runner": {"livenessProbe": {"tcpSocket": {"port": 1}}}},
    {"runner": {"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}},
    {"labels": {"team": "a"}},
]
OTHER_SPEED: list[dict[str, Any]] = [
    NEXT,
    {"runner": {"args": ["--max-running-requests=9"]}},
    {"runner": {"command": ["serve"]}},
    {"runner": {"env": [{"name": "A", "value": "1"}]}},
    {"runner": {"resources": {"limits": {"nvidia.com/gpu": 2}}}},
    {"annotations": {keys.RDMA_INJECT: "true"}},
    {"annotations": {keys.TRACES: "collector:4317"}},
    {"hostNetwork": True},
    {"worker": {"size": 1}},
]


@pytest.mark.parametrize("role", [*SAME_SPEED, *OTHER_SPEED])
def test_configuration_changes_only_if_the_edit_may_change_the_speed(role: dict[str, Any]) -> None:
    world = Demanded(**spec("Apply"))
    before, revision = configurations(world), task(world).revision
    world.edited(**edited(**role))
    after = configurations(world)
    assert task(world).revision != revision, "the pods are others"
    assert after[0] == before[0] and (after[1] == before[1]) == (role in SAME_SPEED)


INPUTS: dict[str, Any] = {
    "runtime": {},
    "engine": {"runner": {"name": "ome-container", "image": "engine:1"}},
    "accelerator": {"engine": {"class": "h200", "args": ["--tp-size=8"], "asked": {"policy": "BestFit"}}},
}


def template(**edit: Any) -> str:
    """Return the template of the engine of a revision with these inputs in place of those in `INPUTS`."""
    return _template("engine", {"inputs": {**INPUTS, **edit}})


def test_the_settings_of_an_accelerator_class_belong_to_the_configuration() -> None:
    """The settings of an accelerator class are part of a group's configuration. How the class was chosen, and the settings
    that the service itself makes, are not.
    """
    part = INPUTS["accelerator"]["engine"]
    other = {"args": ["--tp-size=4"]}, {"env": {"A": "1"}}, {"class": "h100"}, {"nodeSelector": {"gpu": "h200"}}
    found = [template(accelerator={"engine": {**part, **one}}) for one in other]
    assert len({template(), *found}) == 5
    assert template(accelerator={"engine": {**part, "asked": {"policy": "Cheapest"}}}) == template()
    own = {"runner": {**INPUTS["engine"]["runner"], "args": ["--tp-size=2"]}}
    assert template(engine=own) == template(engine=own, accelerator={"engine": {**part, **other[0]}}) != template()


def test_a_revision_that_cannot_be_composed_has_an_unknown_template() -> None:
    assert _template("engine", {}) == template(engine={}) == _template("decoder", {"inputs": INPUTS}) == ""


def test_other_weights_at_the_same_path_change_the_configuration() -> None:
    world = Demanded(**spec("Apply"))
    before = configurations(world)
    model = parts.model()
    storage = model.spec.storage
    assert storage is not None
    other = parts.model(storage={**storage.dump(), "storageUri": "hf://other/model"})
    world.deps = replace(world.deps, models=dict.fromkeys(world.deps.models, other))
    world.settle()
    after = configurations(world)
    assert all(one != two for one, two in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("labels", "hardware"),
    [
        ({"nvidia.com/gpu.product": "NVIDIA-H200"}, "1x NVIDIA-H200"),
        ({"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, "1x AMD_Instinct_MI300X_OAM"),
        ({}, ""),
    ],
)
def test_gpus_of_a_configuration_come_from_the_node_labels(labels: dict[str, str], hardware: str) -> None:
    world = Demanded(**spec("Apply"))
    nodes = {pod.node: Node(pod.node, 1, labels, True, 8) for pod in world.observed().pods}
    world.deps = parts.change_deps(world.deps, nodes=nodes)
    for found in configurations(world):
        assert [one.hardware for one in found] == [hardware]


def test_after_a_rollout_no_group_is_removed_until_it_is_measured() -> None:
    """After a rollout, no group is removed until the new groups are measured. Four decode groups serve a load for which one
    group was enough, but after the rollout it is unknown whether one still is.
    """
    role = {"minReplicas": 1, "maxReplicas": 9}
    world = Demanded(**edited(**role))
    world.children["RoleScale", "svc-decoder"].manifest["spec"]["replicas"] = 4  # as it was created
    world.settle()
    world.decide()
    world.edited(**edited(**role, **NEXT))
    world.rate = QUIET
    world.decide(3600)
    assert world.decoders() == 4
    assert not world.state.learned.curve and world.state.former.curve == KNOWN.curve
    world.state = world.state._replace(learned=world.state.learned._replace(curve=KNOWN.curve))
    for _ in range(400):  # while a group drains, the numbers of the test have a gap
        world.decide()
    assert world.decoders() == 1


def test_groups_are_added_after_a_rollout_without_measurements() -> None:
    world = Demanded(**spec("Apply"))
    world.decide()
    world.edited(**edited(**NEXT))
    world.rate = BUSY
    world.decide(300)
    assert world.decoders() == 2 and not world.state.learned.curve


def test_after_a_rollback_the_measurements_count_again() -> None:
    world = Demanded(**spec("Apply"))
    world.decide()
    known = world.state.learned
    world.edited(**edited(**NEXT))
    world.decide()
    assert world.state.learned.curve != known.curve
    world.edited(**spec("Apply"))
    world.decide()
    assert world.state.learned.curve == known.curve
