"""Tests of which parts of a Plan are carried out during a freeze and in observe mode, for every field of a Plan, and of how
the rest is reported.
"""

from dataclasses import fields, is_dataclass, replace
from inspect import getmembers, isclass
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.core.freeze import plan_filter
from ome_operator.core.freeze.hold import Hold
from ome_operator.core.observed.objects import Observed
from ome_operator.core.reconcile import plan
from ome_operator.core.reconcile.plan import (
    Apply,
    ApplyStatus,
    Check,
    Create,
    Delete,
    EnsureSecret,
    Event,
    GroupRecycle,
    Patch,
    Plan,
)
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.reconcile.sync import sync
from tests.support.effects import effects
from tests.support.shapes import Shape
from tests.support.simulator import World

FROZEN, OBSERVED = Hold(False, "frozen", "thaw it"), Hold(True, "observed", "go on")
SHAPE = Shape(size=2, engines=2)


def settled(shape: Shape = SHAPE) -> World:
    """Return a service that serves."""
    world = World(shape.service(), shape.deps(), 3)
    world.settle()
    return world


def manifest(kind: str, name: str = "svc", hash_: str = "new") -> dict[str, Any]:
    labels = {keys.COMPONENT: keys.ENGINE, keys.REVISION: "abc"}
    return {"kind": kind, "metadata": {"name": name, "labels": labels, "annotations": {keys.HASH: hash_}}}


DELETE = Delete("StatefulSet", "svc-engine-abc-0", "uid-1")
MARK = Patch("Pod", "svc-engine-abc-0-0", "uid-2", {"metadata": {"annotations": {keys.DRAINING: "2026-01-01T00:00:00Z"}}})
STEPS: dict[str, tuple[Any, str]] = {
    "check": (Check("abc.123", ()), "validate revision abc in a dry run"),
    "first": (Apply(manifest("ControllerRevision"), ""), "store revision abc"),
    "ensure_secret": (EnsureSecret(manifest("Secret", "svc-ssh")), "create Secret svc-ssh"),
    "apply": (Apply(manifest("StatefulSet"), ""), "create StatefulSet svc"),
    "create": (Create(manifest("RoleScale", "svc-engine")), "create RoleScale svc-engine"),
    "apply_status": (ApplyStatus(manifest("RoleScale", "svc-engine")), "report the status of RoleScale svc-engine"),
    "patch": (MARK, "drain Pod svc-engine-abc-0-0"),
    "scale": (Patch("RoleScale", "svc-engine", "uid-4", {"spec": {"replicas": 1}}), "scale RoleScale svc-engine"),
    "delete": (DELETE, "delete StatefulSet svc-engine-abc-0"),
    "recycle": (
        GroupRecycle((Delete("Pod", "p", "uid-3"),), "", frozenset()),
        "delete Pod p to recycle their group",
    ),
}
"""For each field of a Plan that contains steps: an example, and the text by which the step is reported."""
WHILE_FROZEN = {"check", "apply_status"}
"""Fields whose steps are carried out even during a freeze."""
NO_STEPS = {
    "look", "status", "urgent", "events", "pulls", "rolls", "stands", "nodes", "claim", "demand", "watch_failures",
    "requeue_after",
}  # fmt: skip
"""The other fields of a Plan. They change nothing in the cluster: what is read and reported, and the time of the next pass.
"""
PARTS = {"Guard", "NodeLost", "CapacityCheck", "Event", "Plan"}
"""Classes of core/reconcile/plan.py that are no steps."""


def test_every_field_of_a_plan_has_a_rule_for_freeze_and_observe_mode() -> None:
    """Every field of a Plan has a rule for freezes and one for observe mode. A new field must be added to the tables here,
    which state what happens to it.
    """
    known = {item.name for item in fields(Plan)}
    assert plan_filter.FROZEN.keys() == plan_filter.OBSERVED.keys() == STEPS.keys() | NO_STEPS == known
    assert plan_filter.SAYS.keys() == STEPS.keys()


def test_every_kind_of_plan_step_is_tested() -> None:
    kinds = {name for name, item in getmembers(plan, isclass) if is_dataclass(item) and item.__module__ == plan.__name__}
    assert {type(step).__name__ for step, _ in STEPS.values()} == kinds - PARTS


def test_a_field_without_a_rule_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = {name: rule for name, rule in plan_filter.FROZEN.items() if name != "check"}
    monkeypatch.setattr(plan_filter, "FROZEN", rules)
    world = settled()
    assert plan_filter.allowed_plan(Plan(check=(Check("abc.1", ()),)), FROZEN, snapshot(world)) == Plan()


def snapshot(world: World, observed: Observed | None = None) -> Snapshot:
    return Snapshot(world.service, world.deps, observed or world.observed(), world.now)


@pytest.mark.parametrize("field", STEPS)
@pytest.mark.parametrize("held", [FROZEN, OBSERVED], ids=["frozen", "observed"])
def test_suppressed_plan_steps_are_reported(field: str, held: Hold) -> None:
    step, words = STEPS[field]
    whole = Plan(**{field: (step,)})
    less = plan_filter.allowed_plan(whole, held, snapshot(settled()))
    if field in WHILE_FROZEN and not held.is_observe_mode:
        assert less == whole and plan_filter.suppressed_steps(whole, less) == ()
    else:
        assert less == Plan() and plan_filter.suppressed_steps(whole, less) == (words,)


def test_status_and_events_are_not_suppressed() -> None:
    explanation = {"status": {"a": 1}, "urgent": False, "watch_failures": (("StatefulSet", "x"),)}
    whole = Plan(**explanation, requeue_after=0.5, rolls=True, events=(Event("Warning", "R", "m"),))  # type: ignore[arg-type]
    world = settled()
    assert plan_filter.allowed_plan(whole, FROZEN, snapshot(world)) == Plan(**explanation, events=whole.events)  # type: ignore[arg-type]
    assert plan_filter.allowed_plan(whole, OBSERVED, snapshot(world)) == Plan(**explanation)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", sorted(plan_filter.MENDED))
def test_changed_or_deleted_service_objects_are_restored_during_a_freeze(kind: str) -> None:
    """If somebody changes or deletes an object through which requests reach pods, it is restored during a freeze as it was.
    New contents wait until the thaw.
    """
    world = settled()
    name = "svc" if kind == "Service" else "svc-router"
    found = world.children[kind, name]
    found.owned = "changed by a stranger"
    assert f"apply {kind} {name}" in effects(go(world, "freeze"))
    assert effects(go(world, "observe")) == ()
    found.hash = "of another manifest"
    assert effects(go(world, "freeze")) == ()
    del world.children[kind, name]
    assert f"apply {kind} {name}" in effects(go(world, "freeze"))
    world.pods.clear()
    assert effects(go(world, "freeze")) == ()


def go(world: World, note: str) -> Plan:
    """Return the plan of a reconciliation while the service has this annotation."""
    held = replace(world.service, annotations={f"{keys.GROUP}/{note}": "true"})
    return sync(held, world.deps, world.observed(), world.now)


def test_new_objects_are_not_created_during_a_freeze() -> None:
    """A router is added during a freeze. Its ServiceAccount is not created, because no pod needs it yet."""
    world = settled(replace(SHAPE, router=False))
    world.edit(SHAPE.service())
    assert effects(go(world, "freeze")) == ()
    assert "create ServiceAccount svc-router" in condition(go(world, "freeze"))


def condition(plan: Plan, type_: str = "Frozen") -> str:
    return next((str(item["message"]) for item in plan.status["conditions"] if item["type"] == type_), "")


def test_marked_leaders_serve_again_while_frozen() -> None:
    world = settled()
    leader = next(pod for pod in world.pods.values() if pod.rank == 0 and pod.labels[keys.COMPONENT] == keys.ENGINE)
    leader.draining = world.now.isoformat()
    world.edit(replace(SHAPE, engines=1).service())
    (patch,) = go(world, "freeze").patch
    assert (patch.name, patch.body["metadata"]["annotations"]) == (leader.name, {keys.DRAINING: None})
    assert go(world, "observe").patch == ()


@pytest.mark.parametrize("note", ["freeze", "observe"])
def test_first_creation_is_suppressed_and_reported_while_frozen(note: str) -> None:
    world = World(SHAPE.service(), SHAPE.deps(), 3)
    plan = go(world, note)
    assert effects(plan) == ()
    assert "would store revision" in condition(plan) and "4 StatefulSets (svc-engine-" in condition(plan)
    ready = next(item for item in plan.status["conditions"] if item["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", {"freeze": "Frozen", "observe": "Observed"}[note])
    assert "revision" not in plan.status and "slices" not in plan.status and "url" not in plan.status


def test_frozen_service_with_a_lost_pod_is_reported_as_not_complete() -> None:
    world = settled()
    lost = next(name for name, pod in world.pods.items() if pod.labels[keys.COMPONENT] == keys.ENGINE)
    del world.pods[lost]
    plan = go(world, "freeze")
    assert condition(plan, "RolledOut").endswith(f"; revision {plan.status['revision']} is not complete")


def test_service_stays_ready_while_freeze_suppresses_an_edit() -> None:
    world = settled()
    world.edit(deps=replace(SHAPE, image="b").deps())
    before = world.service.status
    plan = go(world, "freeze")
    assert plan.status["revision"] == before["revision"] and plan.status["groups"] == before["groups"]
    assert condition(plan, "RolledOut").startswith("frozen; revision ")
    assert f"would replace revision {before['revision']} with " in condition(plan)
    ready = next(item for item in plan.status["conditions"] if item["type"] == "Ready")
    assert ready["status"] == "True"


def test_additional_group_is_not_reported_as_being_created_while_frozen() -> None:
    world = settled()
    world.edit(replace(SHAPE, engines=3).service())
    told = {item["type"]: (item["status"], item["reason"]) for item in go(world, "freeze").status["conditions"]}
    assert told["EngineReady"] == told["Scaled"] == ("False", "Frozen") and told["RouterReady"] == ("True", "Ready")
    assert told["Ready"] == ("True", "Serving"), "the existing groups continue to serve"


def test_service_without_its_service_object_is_not_ready_in_observe_mode() -> None:
    """In observe mode, a missing Service is not created, so the service is not Ready although its pods are. A frozen service
    gets its Service back in the same reconciliation.
    """
    world = settled()
    del world.children["Service", "svc"]
    told = {how: go(world, how) for how in ("observe", "freeze")}
    observed, frozen = ({each["type"]: each for each in plan.status["conditions"]} for plan in told.values())
    assert (observed["Ready"]["status"], observed["Ready"]["reason"]) == ("False", "Observed")
    assert "the Service svc does not exist" in observed["Ready"]["message"] and not told["observe"].apply
    assert frozen["Ready"]["status"] == "True" and [each.kind for each in told["freeze"].apply] == ["Service"]


def test_no_group_recycled_event_while_recycling_is_suppressed() -> None:
    world = settled()
    lost = next(pod for pod in world.pods.values() if pod.rank == 1 and pod.labels[keys.COMPONENT] == keys.ENGINE)
    world.lose(lost.name)
    while not (lost.name in world.pods and world.pods[lost.name].uid != lost.uid):
        assert world.step(), "its StatefulSet creates it again"
    explanation = {event.reason for event in go(world, "freeze").events}
    assert "GroupRecycled" not in explanation and "Frozen" in explanation
    assert "GroupRecycled" in {event.reason for event in world.sync().events}


def test_repeated_reconciliation_reports_the_same_status_while_frozen() -> None:
    """A reconciliation that is repeated during a freeze reports the same. A status that differs each time would be written
    each time, and each write would cause another reconciliation.
    """
    world = settled()
    world.edit(replace(SHAPE, engines=1).service(), replace(SHAPE, image="b").deps())
    for _ in range(2):
        world.service = replace(world.service, status=go(world, "freeze").status)
    assert go(world, "freeze").status == world.service.status


@pytest.mark.parametrize("note", ["freeze", "observe"])
def test_freeze_is_written_to_status_at_once_but_changed_counts_are_not(note: str) -> None:
    world = settled()
    plan = go(world, note)
    assert plan.urgent
    told = plan.status["conditions"]
    counted = [{**each, "message": "on 3 nodes"} if each["type"] == "ModelReady" else each for each in told]
    world.service = replace(world.service, status={**plan.status, "conditions": counted})
    again = go(world, note)
    assert again.status == plan.status != world.service.status and not again.urgent


def test_rollout_deadline_does_not_run_during_a_freeze() -> None:
    """The time limit of a rollout does not run during a freeze: a frozen rollout is not rejected, and after the thaw the new
    slice has the whole time limit.
    """
    shape = replace(SHAPE, rollback=True, strategy="surge")
    world = World(shape.service(), shape.deps(), 3)
    world.settle()
    world.edit(deps=replace(shape, image="b").deps())
    old = world.service.status["revision"]
    world.healthy = lambda pod: pod.labels[keys.REVISION] == old
    world.run(8)
    assert world.service.status.get("progress")
    world.now = world.now.replace(year=2027)
    plan = go(world, "freeze")
    assert "progress" not in plan.status and "rejected" not in plan.status and plan.requeue_after is None
    world.service = replace(world.service, status=plan.status)
    thawed = world.sync()
    assert "rejected" not in thawed.status and thawed.status["progress"]["since"].startswith("2027")


def test_frozen_condition_is_removed_after_the_thaw() -> None:
    world = settled()
    world.service = replace(world.service, status=go(world, "freeze").status)
    assert world.condition("Frozen")["reason"] == "Frozen"
    assert condition(world.sync()) == ""


def test_frozen_condition_is_set_although_another_operator_manages_the_service() -> None:
    world = settled()
    others = replace(world.observed(), another="ome-controller")
    held = replace(world.service, annotations={keys.FREEZE: "true"})
    plan = sync(held, world.deps, others, world.now)
    assert condition(plan) == "frozen; `ome thaw svc -n team` ends the freeze of this service"
    assert condition(plan, "AnotherOperator")


def test_truncated_frozen_message_keeps_its_ending() -> None:
    explanation = plan_filter.condition(FROZEN, [f"create StatefulSet {'x' * 60}"] * 99).message
    assert len(explanation) < 1024 and explanation.endswith("; thaw it")


def test_frozen_service_rolls_only_if_its_rollout_has_started() -> None:
    world = settled()
    assert not plan_filter.allowed_plan(Plan(rolls=True), FROZEN, snapshot(world)).rolls
    world.edit(deps=replace(SHAPE, image="b").deps())
    for _ in range(60):
        world.run(1)
        if len(snapshot(world).slices) > 1:
            break
    assert plan_filter.allowed_plan(Plan(rolls=True), FROZEN, snapshot(world)).rolls
