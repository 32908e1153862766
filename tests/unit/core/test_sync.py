"""What a whole pass says and does in cases that are not about rollouts (tests/property has those)."""

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.api.rollout import Rollout
from ome_operator.core.observed.objects import Deps, Epoch, Observed, Ref, Refusal
from ome_operator.core.plan import NEEDED, EditState, Plan, Stand
from ome_operator.core.rollout import revisions
from ome_operator.core.sync import refuse_spec, sync
from tests.support import parts
from tests.support.shapes import Shape
from tests.support.simulator import START, World, effects


def conditions(plan: Plan) -> dict[str, tuple[str, str]]:
    """Type -> (status, reason)."""
    return {one["type"]: (one["status"], one["reason"]) for one in plan.status.get("conditions", ())}


def settled(shape: Shape) -> World:
    """A service that has come up."""
    world = World(shape.service(), shape.deps(), 3)
    world.settle()
    return world


def test_a_service_that_goes_is_left_to_the_garbage_collector() -> None:
    service = replace(Shape().service(), deleting=True, status={"url": "x"})
    plan = sync(service, Shape().deps(), Observed(), START)
    assert effects(plan) == () and plan.status == {"url": "x"}


def test_another_operator_is_told_and_nothing_is_touched() -> None:
    world = settled(Shape())
    plan = sync(world.service, Shape(image="b").deps(), replace(world.observed(), another="manager"), START)
    assert effects(plan) == ()
    assert conditions(plan)["AnotherOperator"] == ("True", "ForeignManager")
    assert plan.status["url"] == world.service.status["url"], "what was said stays"
    assert plan.requeue_after and not plan.urgent


def test_a_spec_that_cannot_be_read_keeps_everything_else() -> None:
    world = settled(Shape())
    plan = refuse_spec(dict(world.service.status), 9, "InvalidSpec", "spec.engine is a text", START)
    assert effects(plan) == ()
    assert plan.status["url"] == world.service.status["url"] and plan.status["observedGeneration"] == 9
    assert conditions(plan)["Ready"] == ("False", "InvalidSpec")
    assert conditions(plan)["EngineReady"] == ("True", "Ready")
    assert [one.reason for one in plan.events] == []


def test_wrong_shapes_in_a_pod_spec_are_a_condition() -> None:
    """The parts of a pod spec are open in the CRD: nothing that stands there may crash a pass."""
    service = parts.service(engine={"runner": {"env": {"A": "1"}}}, router={})
    plan = sync(service, Shape().deps(), Observed(), START)
    assert conditions(plan)["EngineReady"] == ("False", "InvalidPod")
    assert conditions(plan)["Ready"][0] == "False"
    assert not [one for one in plan.apply if one.manifest["kind"] == "StatefulSet"]


def test_a_router_that_cannot_be_made_leaves_the_one_that_runs() -> None:
    world = settled(Shape())
    pods, url = world.alive(), world.service.status["url"]
    world.edit(parts.service(engine={}, router={"runner": {"args": "--x"}}))
    world.settle()
    assert (world.alive(), world.service.status["url"]) == (pods, url)
    assert world.condition("RouterReady")["reason"] == "InvalidPod"


@pytest.mark.parametrize("gone", ["model", "runtime"])
def test_what_vanishes_under_a_service_that_runs_changes_only_a_condition(gone: str) -> None:
    shape = Shape(size=2, engines=2)
    world = settled(shape)
    before = world.service.status
    log = list(world.log)
    world.edit(deps=shape.deps(model=gone != "model", runtime=gone != "runtime"))
    world.settle()
    assert world.log == log
    assert world.condition("Ready")["status"] == "True"
    assert {key: world.service.status[key] for key in ("url", "revision")} == {
        key: before[key] for key in ("url", "revision")
    }
    assert world.condition(f"{gone.title()}Ready")["status"] == "False"


def test_repairs_go_on_while_the_runtime_is_gone() -> None:
    """A slice is stamped from what is stored (decisions 3)."""
    shape = Shape(size=2)
    world = settled(shape)
    world.edit(deps=shape.deps(runtime=False))
    (key,) = [key for key in world.children if key[0] == "StatefulSet" and key[1].endswith("-w")]
    lost = world.children.pop(key)
    world.settle()
    assert world.children[key].hash == lost.hash
    assert len(world.alive()) == shape.pods


def test_a_group_whose_leaders_set_is_deleted_is_replaced_from_what_is_stored() -> None:
    """Its pods may end in their time, so the group that comes has another number; else it is the same."""
    shape = Shape(size=2)
    world = settled(shape)
    world.edit(deps=shape.deps(runtime=False))
    leader, worker = (world.children[key] for key in sorted(world.children) if key[0] == "StatefulSet")
    del world.children[leader.key]
    world.settle()
    pair = [world.children[key] for key in sorted(world.children) if key[0] == "StatefulSet"]
    assert [one.labels[keys.GROUP_INDEX] for one in pair] == ["1", "1"]
    for lost, new in zip((leader, worker), pair, strict=True):
        text = json.dumps(lost.manifest["spec"]).replace(f'"{keys.GROUP_INDEX}": "0"', f'"{keys.GROUP_INDEX}": "1"')
        assert json.loads(text) == new.manifest["spec"]
    assert len(world.alive()) == shape.pods


def test_drift_is_repaired_and_what_the_server_rewrites_is_not_drift() -> None:
    world = settled(Shape())
    key = ("Service", "svc")
    world.children[key].owned = "changed"
    observed = world.observed()
    plan = sync(world.service, world.deps, observed, START)
    assert [(one.manifest["kind"], one.uid) for one in plan.apply] == [("Service", world.children[key].uid)]
    rewritten = replace(observed, accepted={world.children[key].uid: "changed"})
    assert effects(sync(world.service, world.deps, rewritten, START)) == ()


def test_what_is_being_deleted_is_waited_for() -> None:
    world = settled(Shape())
    world.children["Service", "svc"].deleting = True
    world.children["Service", "svc"].owned = "changed"
    assert effects(world.sync()) == ()


def test_a_refusal_is_told_at_its_component_while_there_is_something_to_write() -> None:
    world = settled(Shape())
    name = next(name for kind, name in world.children if kind == "StatefulSet")
    engine, front, right = ("StatefulSet", name), ("Service", "svc"), ("Service", "svc-engine")
    world.children[engine].owned = world.children[front].owned = "changed"
    refusals = {
        engine: Refusal("Invalid", "bad"),
        front: Refusal("NameTaken", "taken"),
        right: Refusal("Forbidden", "old"),
        ("Service", "long-gone"): Refusal("NameTaken", "old"),
    }
    assert right in world.children
    plan = sync(world.service, world.deps, replace(world.observed(), refusals=refusals), START)
    assert conditions(plan)["EngineReady"] == ("False", "Invalid")
    assert conditions(plan)["Ready"] == ("False", "NameTaken")
    assert "old" not in str(plan.status)


@pytest.mark.parametrize("kind", NEEDED)
def test_without_its_address_or_its_rights_nothing_is_ready(kind: str) -> None:
    world = settled(Shape())
    key = next(key for key in world.children if key[0] == kind)
    del world.children[key]
    plan = sync(world.service, world.deps, replace(world.observed(), refusals={key: Refusal("Forbidden", "no")}), START)
    assert conditions(plan)["Ready"] == ("False", "Forbidden")


def test_a_refused_deletion_leaves_the_service_not_alone() -> None:
    world = settled(Shape())
    world.edit(Shape(router=False).service())
    one = next(one for one in world.sync().delete if one.kind == "Service")

    def plan(uid: str) -> Plan:
        refusals = {(one.kind, one.name): Refusal("Conflict", "not now", uid)}
        return sync(world.service, world.deps, replace(world.observed(), refusals=refusals), START)

    told = plan(one.uid)
    assert conditions(told)["RolledOut"] == ("False", "Conflict")
    assert [event.message for event in told.events] == [f"Service {one.name} cannot be deleted: not now"]
    assert conditions(told)["Ready"][0] == "True", "what should go is in nobody's way"
    assert conditions(plan("former"))["RolledOut"] == ("True", "Complete"), "another object had this name"


def test_pods_that_never_came_are_looked_into() -> None:
    world = World(Shape(size=2).service(), Shape(size=2).deps(), 1)
    world.carry_out(world.sync())
    plan = world.sync()
    assert {kind for kind, _ in plan.watch_failures} == {"StatefulSet", "Deployment"}
    (leaders, *_) = plan.watch_failures
    refused = replace(world.observed(), failures={leaders: "exceeded quota: gpus"})
    said = sync(world.service, world.deps, refused, START).status["conditions"]
    assert [one["reason"] for one in said if one["type"] == "EngineReady"] == ["PodsRefused"]


def front(world: World) -> str:
    """The component behind the URL."""
    spec = world.children["Service", "svc"].manifest["spec"]
    return str(spec["selector"][keys.COMPONENT])


def test_an_engine_keeps_the_url_until_a_router_that_was_added_is_ready() -> None:
    world = settled(Shape(router=False))
    world.healthy = lambda pod: pod.labels[keys.COMPONENT] != keys.ROUTER
    world.edit(Shape().service())
    world.settle()
    assert front(world) == "engine"
    assert world.condition("RouterReady")["status"] == "False"
    world.healthy = lambda _: True
    world.settle()
    assert front(world) == "router"
    for pod in world.pods.values():
        pod.ready = pod.labels[keys.COMPONENT] != keys.ROUTER
    world.healthy = lambda pod: pod.labels[keys.COMPONENT] != keys.ROUTER
    world.settle()
    assert front(world) == "router", "a router that is sick later does not give the URL back"


def test_routers_keep_their_rights_until_the_last_of_them_is_gone() -> None:
    world = settled(Shape())
    world.edit(Shape(router=False).service())
    plan = world.sync()
    assert {one.kind for one in plan.delete} == {"Deployment", "Service", "PodDisruptionBudget"}
    world.settle()
    assert not {"Role", "RoleBinding", "ServiceAccount"} & {kind for kind, _ in world.children}


def test_ports_of_80_are_not_given_twice() -> None:
    engine = {"runner": parts.container(args=["--port=80"])}
    plan = sync(parts.service(engine={}), parts.deps(parts.model(), parts.runtime(engineConfig=engine)), Observed(), START)
    for one in plan.apply:
        if one.manifest["kind"] == "Service":
            ports = [port["port"] for port in one.manifest["spec"].get("ports", ())]
            assert len(ports) == len(set(ports))
    assert plan.status["url"].endswith(":80")


def advice(deps: Deps | None = None, **spec: Any) -> str:
    """What the Advice condition says."""
    service: InferenceService = parts.service(**spec)
    found = sync(service, deps or Shape().deps(), Observed(), START).status["conditions"]
    return next((str(one["message"]) for one in found if one["type"] == "Advice"), "")


def test_advice_is_gathered_from_everywhere() -> None:
    assert advice(engine={}, decoder={}, router={}) == ""
    assert "allows no eviction" in advice(engine={"minAvailable": 1})
    assert "not a profile" in advice(engine={"annotations": {keys.RDMA_INJECT: "true", keys.RDMA_PROFILE: "x"}})
    assert "given twice" in advice(
        engine={"runner": {"ports": [{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]}}
    )


def test_an_engine_that_tells_prometheus_nothing_is_told_where_it_is_asked() -> None:
    """And nothing is added to what runs."""
    launch = parts.container(command=["python3", "-m", "sglang.launch_server"])
    deps, asked = Shape().deps(), replace(Shape().deps(), scrapes_engines=True)
    assert "--enable-metrics" not in advice(deps, engine={"runner": launch})
    assert "engine: the engine serves no metrics without --enable-metrics" in advice(asked, engine={"runner": launch})
    assert "metrics" not in advice(asked, engine={"runner": {**launch, "args": ["--enable-metrics"]}})
    applied = [sync(parts.service(engine={"runner": launch}), each, Observed(), START).apply for each in (deps, asked)]
    assert applied[0] == applied[1]


def test_zero_replicas_of_a_router_and_of_engines() -> None:
    for engine, router in (({"minReplicas": 0}, {}), ({}, {"minReplicas": 0})):
        world = World(parts.service(engine=engine, router=router), Shape(size=1).deps(), 1)
        world.settle()
        assert len(world.alive()) == 1
        assert conditions(world.sync())["Ready"] == ("False", "ScaledToZero")


class Blind(World):
    """A cluster whose pods the cache does not show."""

    def observed(self) -> Observed:
        """Everything but the pods."""
        return replace(super().observed(), pods=())


def blinded(world: World) -> Blind:
    """The same cluster, seen without its pods."""
    blind = Blind(world.service, world.deps, 5)
    blind.children, blind.pods = world.children, world.pods
    return blind


@pytest.mark.parametrize("size", [1, 2])
def test_a_new_slice_is_not_created_on_a_caches_word(size: int) -> None:
    """The guard is read live: pods of the old slice are there though nobody sees them."""
    world = blinded(settled(Shape(size=size, router=False)))
    world.edit(deps=Shape(size=size, image="b").deps())
    for _ in range(6):
        world.carry_out(world.sync())  # the world refuses StatefulSets beside pods of another revision
    target = world.service.status["revision"].rpartition("→")[2]
    assert target not in sets(world)
    world.pods.clear()
    for _ in range(2):
        world.carry_out(world.sync())
    assert sets(world) == {target}


def sets(world: World) -> set[str]:
    """Revisions that have StatefulSets."""
    return {one.labels[keys.REVISION] for (kind, _), one in world.children.items() if kind == "StatefulSet"}


def test_workers_are_not_taken_from_a_leader_on_a_caches_word() -> None:
    world = blinded(settled(Shape(size=2, engines=2, router=False)))
    world.edit(Shape(size=2, engines=1, router=False).service())
    for _ in range(4):
        world.carry_out(world.sync())  # the world refuses to delete workers before their leader
    left = [name for kind, name in world.children if kind == "StatefulSet"]
    (gone,) = [name for name in left if name.endswith("-w") and name.removesuffix("-w") not in left]
    assert len(left) == 3
    del world.pods[f"{gone.removesuffix('-w')}-0"]
    world.carry_out(world.sync())
    assert [name for kind, name in world.children if kind == "StatefulSet"] == [name for name in left if name != gone]


@pytest.mark.parametrize("strategy", ["", "surge", "blueGreen"])
def test_a_turn_lasts_until_the_new_slice_is_whole(strategy: str) -> None:
    """A runtime that works for nobody stops at its first service, also where the old slice serves on."""
    world = settled(Shape(strategy=strategy))
    world.deps = Shape(image="b").deps()
    plans: list[Plan] = []
    world.watcher = plans.append
    world.healthy = lambda _: False
    world.settle()
    assert plans[-1].rolls and conditions(plans[-1])["RolledOut"] == ("False", "ProgressDeadlineExceeded")
    assert conditions(plans[-1])["Ready"][0] == str(bool(strategy))
    world.healthy = lambda _: True
    world.settle()
    assert not plans[-1].rolls and conditions(plans[-1])["RolledOut"] == ("True", "Complete")


def test_a_turn_ends_in_the_pass_that_says_so() -> None:
    """No event follows our own write of a status, so a later pass may be ten minutes away, and others wait."""
    world = settled(Shape())
    world.deps = Shape(image="b").deps()
    plans: list[Plan] = []
    world.watcher = plans.append
    world.settle()
    turns = [(plan.rolls, conditions(plan)["RolledOut"][0]) for plan in plans]
    assert (True, "False") in turns
    assert (True, "True") not in turns


def test_an_edit_of_the_service_itself_waits_for_nobody() -> None:
    world = settled(Shape())
    world.may_roll = False
    world.deps = Shape(image="b").deps()
    world.settle()
    assert conditions(sync(world.service, world.deps, world.observed(), START))["RolledOut"] == ("False", "WaitingForTurn")
    world.deps = Shape().deps()
    engine = world.service.spec.engine
    assert engine is not None
    changed = engine.model_copy(update={"runner": {"env": [{"name": "A", "value": "1"}]}})
    world.service = replace(world.service, spec=world.service.spec.model_copy(update={"engine": changed}))
    world.settle()
    assert conditions(sync(world.service, world.deps, world.observed(), START))["RolledOut"] == ("True", "Complete")


RUNTIME = Ref("ClusterServingRuntime", "", "rt")


def numbered(shape: Shape, generation: int) -> Deps:
    """What a service of this shape may refer to, with a runtime of this generation."""
    deps = shape.deps()
    return replace(
        deps, runtimes={ref: replace(item, uid="u", generation=generation) for ref, item in deps.runtimes.items()}
    )  # type: ignore[arg-type]


def stories(world: World) -> list[Plan]:
    """The plans that are carried out from now on."""
    plans: list[Plan] = []
    world.watcher = plans.append
    return plans


def test_a_service_proves_the_edit_that_it_became_whole_with() -> None:
    """A new service proves nothing, nor does an edit that changes none of its engines."""
    world = World(Shape().service(), numbered(Shape(), 1), 3)
    world.settle()
    assert "reached" not in world.service.status and world.sync().stands[RUNTIME].state == EditState.EQUAL
    world.deps, plans = numbered(Shape(image="b"), 2), stories(world)
    world.settle()
    states = [plan.stands[RUNTIME].state for plan in plans]
    assert states == sorted(states, reverse=True) and {*states} == {EditState.PENDING, EditState.DONE}, (
        "first pending, then done"
    )
    assert all((plan.rolls or bool(plan.check)) is (plan.stands[RUNTIME].state == EditState.PENDING) for plan in plans)
    (proof,) = world.service.status["reached"]
    at = datetime.fromisoformat(proof["time"])
    assert proof | {"time": ""} == {"kind": "ClusterServingRuntime", "name": "rt", "uid": "u", "generation": 2, "time": ""}
    assert world.sync().stands[RUNTIME] == Stand(Epoch("u", 2), EditState.DONE, at)
    world.now += timedelta(hours=1)
    world.edit(Shape(engines=2).service())
    world.settle()
    assert world.sync().stands[RUNTIME].since == at, "scaling up takes nothing of the proof"
    world.deps = numbered(Shape(image="b"), 3)
    world.settle()
    assert world.sync().stands[RUNTIME].state == EditState.EQUAL and "reached" not in world.service.status


def test_a_revision_that_a_user_names_waits_for_nobody() -> None:
    world = World(Shape().service(), numbered(Shape(), 1), 3)
    world.settle()
    first = str(world.service.status["revision"])
    world.deps = numbered(Shape(image="b"), 2)
    world.settle()
    world.may_roll = False
    rollout = Rollout(revision=first)
    world.service = replace(world.service, spec=world.service.spec.model_copy(update={"rollout": rollout}))
    world.settle()
    assert world.service.status["revision"] == first and conditions(world.sync())["RolledOut"] == ("True", "Complete")
    assert world.sync().stands == {} and "reached" not in world.service.status, "it is in no wave"


@pytest.mark.parametrize("why", ["keeps", "model", "large"])
def test_who_is_whole_without_an_edit_proves_nothing_of_it(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not follow the runtime, or no revision can be made of the runtime as it is now."""
    world = World(Shape().service(), numbered(Shape(), 1), 3)
    world.settle()
    world.deps = numbered(Shape(image="b"), 2)
    if why == "keeps":
        assert world.service.spec.runtime is not None
        kept = world.service.spec.runtime.model_copy(update={"auto_sync": False})
        world.service = replace(world.service, spec=world.service.spec.model_copy(update={"runtime": kept}))
    elif why == "model":
        world.deps = replace(world.deps, models={})
    else:
        monkeypatch.setattr(revisions, "SIZE_LIMIT", 10)
    world.settle()
    assert conditions(world.sync())["RolledOut"] == ("True", "Complete")
    assert world.sync().stands.get(RUNTIME, Stand(Epoch("u", 2))) == Stand(Epoch("u", 2))
    assert (RUNTIME in world.sync().stands) is (why != "keeps")


@pytest.mark.parametrize("back", [False, True])
def test_what_did_not_become_whole_in_time_fails_the_edit(back: bool) -> None:
    shape = Shape(rollback=back)
    world = World(shape.service(), numbered(shape, 1), 3)
    world.settle()
    world.deps = numbered(replace(shape, image="b"), 2)
    world.healthy = lambda pod: (
        pod.labels[keys.REVISION] == world.service.status["components"]["engine"].get("latestReadyRevision")
    )
    world.settle()
    assert world.sync().stands[RUNTIME].state == EditState.FAILED
    assert conditions(world.sync())["RolledOut"][1] == ("RolledBack" if back else "ProgressDeadlineExceeded")
    world.deps = numbered(shape, 3)
    world.settle()
    assert world.sync().stands[RUNTIME].state != EditState.FAILED, "the runtime was put back"


def former(world: World, *, made: bool) -> str:
    """The revision of a service that has come up, as an older operator stored it; whether its StatefulSets are left."""
    revision = str(world.service.status["revision"])
    for key, one in list(world.children.items()):
        if key[0] == "ControllerRevision":
            one.manifest["data"] = {**one.manifest["data"], "render": 2}
        elif key[0] == "StatefulSet":
            del world.children[key]
            if made and keys.WORKER_INDEX in one.labels:
                metadata = one.manifest["metadata"]
                labels = {name: value for name, value in metadata["labels"].items() if name != keys.GROUP_INDEX}
                one.manifest["metadata"] = {**metadata, "name": key[1].rpartition("-")[0], "labels": labels}
                world.children[one.key] = one
    if not made:
        world.pods.clear()
    return revision


def test_a_former_slice_is_known_without_its_stored_revision() -> None:
    """Somebody deleted the ControllerRevision: pairs beside its StatefulSet would take all accelerators twice."""
    world = settled(Shape(size=2, engines=2))
    former(world, made=True)
    for key in [key for key in world.children if key[0] == "ControllerRevision"]:
        del world.children[key]
    plan = world.sync()
    assert plan == Plan(status=plan.status, events=plan.events)
    assert conditions(plan)["Ready"] == ("False", "FormerShape")


@pytest.mark.parametrize("edit", [Shape(), Shape(image="b"), Shape(engines=3, router=False), Shape(paused=True)])
def test_a_slice_of_the_former_shape_is_not_touched(edit: Shape) -> None:
    world = settled(Shape(size=2, engines=2))
    before, revision = dict(world.service.status), former(world, made=True)
    world.edit(edit.service(), edit.deps())
    log = list(world.log)
    plan = world.sync()
    assert plan == Plan(status=plan.status, events=plan.events)
    assert conditions(plan)["Ready"] == ("False", "FormerShape")
    (message,) = [one["message"] for one in plan.status["conditions"] if one["type"] == "Ready"]
    assert f"revision {revision} was made by an older version" in message and "delete the InferenceService" in message
    kept = ("url", "revision", "components", "groups")
    assert {name: plan.status.get(name) for name in kept} == {name: before.get(name) for name in kept}
    assert conditions(plan)["EngineReady"] == ("True", "Ready"), "what was said of the rest stays"
    assert plan.status["observedGeneration"] == world.service.generation
    world.carry_out(plan)
    assert world.log == log
    assert world.sync() == Plan(status=plan.status), "it is told once"


def test_also_beside_a_slice_of_todays_shape_nothing_is_touched() -> None:
    world = settled(Shape())
    old = former(world, made=True)
    (one,) = [one for key, one in world.children.items() if key[0] == "StatefulSet"]
    new = World(Shape(image="b").service(), Shape(image="b").deps(), 3)
    new.settle()
    for key, live in new.children.items():
        world.children.setdefault(key, live)
    assert {each.labels[keys.REVISION] for key, each in world.children.items() if key[0] == "StatefulSet"} != {old}
    assert effects(world.sync()) == () and one.key in world.children
    assert conditions(world.sync())["Ready"] == ("False", "FormerShape")
    del world.children[one.key]
    assert conditions(world.sync())["Ready"][1] != "FormerShape", "somebody deleted the former StatefulSet"


@pytest.mark.parametrize("render", [2, 1, 0, None])
def test_a_former_revision_that_nothing_was_made_of_is_never_the_target(render: int | None) -> None:
    """The same inputs are another revision with another name: a revision's data never changes."""
    world = settled(Shape())
    old = former(world, made=False)
    (stored,) = [one for key, one in world.children.items() if key[0] == "ControllerRevision"]
    data = {key: value for key, value in stored.manifest["data"].items() if key != "render"}
    stored.manifest["data"] = data if render is None else {**data, "render": render}
    before = json.dumps(stored.manifest)
    world.settle()
    new = world.service.status["revision"]
    assert new != old and sets(world) == {new}
    assert json.dumps(stored.manifest) == before and stored.key in world.children
    fresh = world.children["ControllerRevision", f"svc-{new}"].manifest
    assert (fresh["revision"], stored.manifest["revision"]) == (2, 1)
    assert fresh["data"]["inputs"] == data["inputs"]
    assert conditions(world.sync())["Ready"][0] == "True"
    world.settle()
    assert world.service.status["revision"] == new, "its name is the same in every pass"


def test_a_former_revision_cannot_be_pinned() -> None:
    world = settled(Shape())
    old = former(world, made=False)
    world.edit(Shape(pin=old).service())
    for _ in range(5):
        world.carry_out(world.sync())
        world.step()
    assert old not in sets(world)
    assert conditions(world.sync())["Ready"][0] == "False"


@pytest.mark.parametrize(("kind", "reason", "gone"), [
    ("Role", "NameTaken", True), ("Role", "Forbidden", False), ("ServiceAccount", "NameTaken", False),
])  # fmt: skip
def test_a_binding_goes_when_somebody_elses_role_has_the_name(kind: str, reason: str, gone: bool) -> None:
    """It was made for our Role, and means whatever has the name by now."""
    world = settled(Shape(router=True))
    del world.children["Role", "svc-router"]
    refusals = {(kind, "svc-router"): Refusal(reason, "no")}
    plan = sync(world.service, world.deps, replace(world.observed(), refusals=refusals), START)
    binding = world.children["RoleBinding", "svc-router"]
    assert [(one.kind, one.uid) for one in plan.delete] == [("RoleBinding", binding.uid)] * gone
    binding.owner = "somebody"
    plan = sync(world.service, world.deps, replace(world.observed(), refusals=refusals), START)
    assert plan.delete == ()


def test_a_binding_that_somebody_changed_is_mended_after_its_role() -> None:
    world = settled(Shape(router=True))
    world.children["RoleBinding", "svc-router"].owned = "changed"
    (apply,) = world.sync().apply
    assert (apply.kind, apply.after) == ("RoleBinding", ("Role", "svc-router")) and apply.uid


def test_what_needs_another_object_comes_after_it() -> None:
    shape = Shape(size=2)
    plan = sync(shape.service(), shape.deps(), Observed(), START)
    found = {(one.kind, one.manifest["metadata"]["name"]): one.after for one in plan.apply}
    later = {key: after for key, after in found.items() if after}
    assert {kind for kind, _ in later} == {"StatefulSet", "RoleBinding"}
    for (kind, name), (before, of) in later.items():
        assert (before, of) in found and found[before, of] is None
        assert (before, of) == (("Role", name) if kind == "RoleBinding" else ("StatefulSet", name.removesuffix("-w")))
