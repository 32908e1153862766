"""Tests of the statuses and effects of complete passes, except for rollouts, which tests/property covers."""

import json
from dataclasses import replace
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.core.observed.objects import Deps, Observed, Refusal
from ome_operator.core.reconcile.plan import NEEDED, Plan
from ome_operator.core.reconcile.sync import refuse_spec, sync
from ome_operator.core.status.serving import observed_serves
from tests.support import parts
from tests.support.effects import effects
from tests.support.parts import change_deps
from tests.support.shapes import Shape
from tests.support.simulator import START, World
from tests.unit.core.passes import conditions, settled


def test_deleted_service_is_left_to_the_garbage_collector() -> None:
    service = replace(Shape().service(), deleting=True, status={"url": "x"})
    plan = sync(service, Shape().deps(), Observed(), START)
    assert effects(plan) == () and plan.status == {"url": "x"}


def test_another_operator_is_reported_and_nothing_is_changed() -> None:
    world = settled(Shape())
    plan = sync(world.service, Shape(image="b").deps(), replace(world.observed(), another="manager"), START)
    assert effects(plan) == ()
    assert conditions(plan)["AnotherOperator"] == ("True", "ForeignManager")
    assert plan.status["url"] == world.service.status["url"], "the previous conditions stay"
    assert plan.requeue_after and not plan.urgent


def test_unreadable_spec_keeps_the_other_status_fields() -> None:
    world = settled(Shape())
    plan = refuse_spec(dict(world.service.status), 9, "InvalidSpec", "spec.engine is a text", START)
    assert effects(plan) == ()
    assert plan.status["url"] == world.service.status["url"] and plan.status["observedGeneration"] == 9
    assert conditions(plan)["Ready"] == ("False", "InvalidSpec")
    assert conditions(plan)["EngineReady"] == ("True", "Ready")
    assert [one.reason for one in plan.events] == []


def test_serving_service_stays_ready_if_its_spec_is_unreadable() -> None:
    world = settled(Shape())
    before = world.condition("Ready")
    plan = refuse_spec(dict(world.service.status), 9, "InvalidSpec", "spec.engine is a text", START, serves=True)
    assert conditions(plan)["RolledOut"] == ("False", "InvalidSpec") and conditions(plan)["EngineReady"] == ("True", "Ready")
    (ready,) = (one for one in plan.status["conditions"] if one["type"] == "Ready")
    assert ready == before | {"observedGeneration": 9}


def test_serving_state_is_determined_without_the_spec() -> None:
    world = settled(Shape(engines=2, decoders=1))
    assert observed_serves(world.observed(), "svc", world.service.uid)
    assert not observed_serves(world.observed(), "svc", "another"), "the objects belong to a previous service of this name"
    for lost in ("router", "engine", "decoder"):
        without = tuple(pod for pod in world.observed().pods if pod.component != lost)
        assert not observed_serves(replace(world.observed(), pods=without), "svc", world.service.uid), lost
    one = tuple(pod for pod in world.observed().pods if (pod.component, pod.group, pod.rank) != ("engine", 0, 1))
    assert observed_serves(replace(world.observed(), pods=one), "svc", world.service.uid), "the other group is complete"
    del world.children["Service", "svc"]
    assert not observed_serves(world.observed(), "svc", world.service.uid)


def test_invalid_pod_spec_types_give_a_condition() -> None:
    """A value of a wrong form in a pod spec, which the CRD permits, leads to a condition, and never to an exception."""
    service = parts.service(engine={"runner": {"env": {"A": "1"}}}, router={})
    plan = sync(service, Shape().deps(), Observed(), START)
    assert conditions(plan)["EngineReady"] == ("False", "InvalidPod")
    assert conditions(plan)["Ready"][0] == "False"
    assert not [one for one in plan.apply if one.manifest["kind"] == "StatefulSet"]


def test_invalid_router_spec_keeps_the_running_router() -> None:
    world = settled(Shape())
    pods, url = world.living_pods(), world.service.status["url"]
    world.edit(parts.service(engine={}, router={"runner": {"args": "--x"}}))
    world.settle()
    assert (world.living_pods(), world.service.status["url"]) == (pods, url)
    assert world.condition("RouterReady")["reason"] == "InvalidPod"


@pytest.mark.parametrize("gone", ["model", "runtime"])
def test_deleted_model_or_runtime_of_a_running_service_changes_only_conditions(gone: str) -> None:
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


def test_deleted_objects_are_recreated_without_the_runtime() -> None:
    """A deleted object of a slice is created again from the stored revision, without the runtime (decisions 3)."""
    shape = Shape(size=2)
    world = settled(shape)
    world.edit(deps=shape.deps(runtime=False))
    (key,) = [key for key in world.children if key[0] == "StatefulSet" and key[1].endswith("-w")]
    lost = world.children.pop(key)
    world.settle()
    assert world.children[key].hash == lost.hash
    assert len(world.living_pods()) == shape.pods


def test_group_with_deleted_leader_statefulset_is_recreated_from_the_revision() -> None:
    """A group without its leader's StatefulSet gets another number only if pods of the group still terminate."""
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
    assert len(world.living_pods()) == shape.pods


def test_drift_is_repaired_but_server_side_rewrites_are_not_drift() -> None:
    world = settled(Shape())
    key = ("Service", "svc")
    world.children[key].owned = "changed"
    observed = world.observed()
    plan = sync(world.service, world.deps, observed, START)
    assert [(one.manifest["kind"], one.uid) for one in plan.apply] == [("Service", world.children[key].uid)]
    rewritten = replace(observed, accepted={world.children[key].uid: "changed"})
    assert effects(sync(world.service, world.deps, rewritten, START)) == ()


def test_terminating_object_is_not_applied_again() -> None:
    world = settled(Shape())
    world.children["Service", "svc"].deleting = True
    world.children["Service", "svc"].owned = "changed"
    assert effects(world.sync()) == ()


def test_refused_write_is_reported_in_the_condition_of_its_component() -> None:
    world = settled(Shape())
    name = next(name for kind, name in world.children if kind == "StatefulSet")
    engine, front, right = ("StatefulSet", name), ("Service", "svc"), ("Service", "svc-engine")
    world.children[engine].owned = world.children[front].owned = "changed"
    refusals = {
        engine: Refusal("Invalid", "bad"),
        front: Refusal("Forbidden", "may not change it"),
        right: Refusal("Forbidden", "old"),
        ("Service", "long-gone"): Refusal("NameTaken", "old"),
    }
    assert right in world.children
    plan = sync(world.service, world.deps, replace(world.observed(), refusals=refusals), START)
    assert conditions(plan)["EngineReady"] == ("False", "Invalid")
    assert conditions(plan)["RolledOut"] == ("False", "Forbidden")
    assert conditions(plan)["Ready"] == ("True", "Serving"), "the existing Service selects the serving pods"
    assert "old" not in str(plan.status)


@pytest.mark.parametrize("kind", NEEDED)
def test_service_without_its_service_or_rbac_objects_is_not_ready(kind: str) -> None:
    world = settled(Shape())
    key = next(key for key in world.children if key[0] == kind)
    del world.children[key]
    plan = sync(world.service, world.deps, replace(world.observed(), refusals={key: Refusal("Forbidden", "no")}), START)
    assert conditions(plan)["Ready"] == ("False", "Forbidden")


def test_refused_deletion_is_reported_only_for_the_same_object() -> None:
    world = settled(Shape())
    world.edit(Shape(router=False).service())
    one = next(one for one in world.sync().delete if one.kind == "Service")

    def plan(uid: str) -> Plan:
        refusals = {(one.kind, one.name): Refusal("Conflict", "not now", uid)}
        return sync(world.service, world.deps, replace(world.observed(), refusals=refusals), START)

    told = plan(one.uid)
    assert conditions(told)["RolledOut"] == ("False", "Conflict")
    assert [event.message for event in told.events] == [f"Service {one.name} cannot be deleted: not now"]
    assert conditions(told)["Ready"][0] == "True", "a superfluous object blocks nothing"
    assert conditions(plan("former"))["RolledOut"] == ("True", "Complete"), "the refusal was about a former object"


def test_workloads_without_pods_are_checked_for_creation_failures() -> None:
    world = World(Shape(size=2).service(), Shape(size=2).deps(), 1)
    world.carry_out(world.sync())
    plan = world.sync()
    assert {kind for kind, _ in plan.watch_failures} == {"StatefulSet", "Deployment"}
    (leaders, *_) = plan.watch_failures
    refused = replace(world.observed(), failures={leaders: "exceeded quota: gpus"})
    said = sync(world.service, world.deps, refused, START).status["conditions"]
    assert [one["reason"] for one in said if one["type"] == "EngineReady"] == ["PodsRefused"]


def front(world: World) -> str:
    """Return the component that the Service of the URL selects."""
    spec = world.children["Service", "svc"].manifest["spec"]
    return str(spec["selector"][keys.COMPONENT])


def test_url_leads_to_the_engine_until_an_added_router_is_ready() -> None:
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
    assert front(world) == "router", "a later failure of the router does not change the URL"


def test_router_rbac_objects_are_deleted_after_the_last_router_pod() -> None:
    world = settled(Shape())
    world.edit(Shape(router=False).service())
    plan = world.sync()
    assert {one.kind for one in plan.delete} == {"Deployment", "Service", "PodDisruptionBudget"}
    world.settle()
    assert not {"Role", "RoleBinding", "ServiceAccount"} & {kind for kind, _ in world.children}


def test_port_80_is_not_listed_twice() -> None:
    engine = {"runner": parts.container(args=["--port=80"])}
    plan = sync(parts.service(engine={}), parts.deps(parts.model(), parts.runtime(engineConfig=engine)), Observed(), START)
    for one in plan.apply:
        if one.manifest["kind"] == "Service":
            ports = [port["port"] for port in one.manifest["spec"].get("ports", ())]
            assert len(ports) == len(set(ports))
    assert plan.status["url"].endswith(":80")


def advice(deps: Deps | None = None, **spec: Any) -> str:
    """Return the message of the condition Advice."""
    service: InferenceService = parts.service(**spec)
    found = sync(service, deps or Shape().deps(), Observed(), START).status["conditions"]
    return next((str(one["message"]) for one in found if one["type"] == "Advice"), "")


def test_advice_of_all_sources_is_collected() -> None:
    assert advice(engine={}, decoder={}, router={}) == ""
    assert "allows no eviction" in advice(engine={"minAvailable": 1})
    assert "not a profile" in advice(engine={"annotations": {keys.RDMA_INJECT: "true", keys.RDMA_PROFILE: "x"}})
    assert "set twice" in advice(
        engine={"runner": {"ports": [{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]}}
    )


def test_missing_metrics_flag_gives_advice_only_if_scraping_is_enabled() -> None:
    """Advice names `--enable-metrics` only if the chart lets Prometheus scrape engines. The running pods are not changed."""
    launch = parts.container(command=["python3", "-m", "sglang.launch_server"])
    deps, asked = Shape().deps(), change_deps(Shape().deps(), scrapes_engines=True)
    assert "--enable-metrics" not in advice(deps, engine={"runner": launch})
    assert "engine: the engine serves no metrics without --enable-metrics" in advice(asked, engine={"runner": launch})
    assert "metrics" not in advice(asked, engine={"runner": {**launch, "args": ["--enable-metrics"]}})
    applied = [sync(parts.service(engine={"runner": launch}), each, Observed(), START).apply for each in (deps, asked)]
    assert applied[0] == applied[1]


def test_zero_replicas_of_a_router_and_of_engines() -> None:
    for engine, router in (({"minReplicas": 0}, {}), ({}, {"minReplicas": 0})):
        world = World(parts.service(engine=engine, router=router), Shape(size=1).deps(), 1)
        world.settle()
        assert len(world.living_pods()) == 1
        assert conditions(world.sync())["Ready"] == ("False", "ScaledToZero")


@pytest.mark.parametrize(("kind", "reason", "gone"), [
    ("Role", "NameTaken", True), ("Role", "Forbidden", False), ("ServiceAccount", "NameTaken", False),
])  # fmt: skip
def test_role_binding_is_deleted_if_its_role_belongs_to_another_owner(kind: str, reason: str, gone: bool) -> None:
    """The RoleBinding is deleted if the Role that it names belongs to somebody else, whose rights it would then grant."""
    world = settled(Shape(router=True))
    del world.children["Role", "svc-router"]
    refusals = {(kind, "svc-router"): Refusal(reason, "no")}
    plan = sync(world.service, world.deps, replace(world.observed(), refusals=refusals), START)
    binding = world.children["RoleBinding", "svc-router"]
    assert [(one.kind, one.uid) for one in plan.delete] == [("RoleBinding", binding.uid)] * gone
    binding.owner = "somebody"
    plan = sync(world.service, world.deps, replace(world.observed(), refusals=refusals), START)
    assert plan.delete == ()


def test_changed_role_binding_is_repaired_after_its_role() -> None:
    world = settled(Shape(router=True))
    world.children["RoleBinding", "svc-router"].owned = "changed"
    (apply,) = world.sync().apply
    assert (apply.kind, apply.after) == ("RoleBinding", ("Role", "svc-router")) and apply.uid


def test_dependent_objects_are_applied_after_their_dependencies() -> None:
    shape = Shape(size=2)
    plan = sync(shape.service(), shape.deps(), Observed(), START)
    found = {(one.kind, one.manifest["metadata"]["name"]): one.after for one in plan.apply}
    later = {key: after for key, after in found.items() if after}
    assert {kind for kind, _ in later} == {"StatefulSet", "RoleBinding"}
    for (kind, name), (before, of) in later.items():
        assert (before, of) in found and found[before, of] is None
        assert (before, of) == (("Role", name) if kind == "RoleBinding" else ("StatefulSet", name.removesuffix("-w")))


REFUSED = 'pods "svc-router" is forbidden: the image is not on the list'


def test_refused_pods_of_every_workload_kind_are_reported_with_cause() -> None:
    """The condition of a role has the cause for refused pods of a StatefulSet (from Events) and of a Deployment."""
    world = settled(Shape(size=2, decoders=1))
    kinds = {key[0] for key, one in world.children.items() if "template" in one.manifest.get("spec", {})}
    assert kinds == {"StatefulSet", "Deployment"}
    for key, live in world.children.items():
        if key[0] not in kinds:
            continue
        seen = world.observed()
        mine = {pod.name for pod in world.pods.values() if live.uid == pod.workload_uid}
        pods = tuple(pod for pod in seen.pods if pod.name not in mine)
        if key[0] == "Deployment":
            children = {**seen.children, key: seen.children[key]._replace(message=REFUSED)}
            seen = replace(seen, pods=pods, children=children)
        else:
            seen = replace(seen, pods=pods, failures={key: REFUSED})
        told = sync(world.service, world.deps, seen, world.now).status["conditions"]
        component = {"engine": "Engine", "decoder": "Decoder", "router": "Router"}[live.labels[keys.COMPONENT]]
        (one,) = (item for item in told if item["type"] == f"{component}Ready")
        assert one["reason"] == "PodsRefused" and one["message"].endswith(f"1 pod cannot be created: {REFUSED}"), key


def test_refused_new_router_pods_are_advice_while_former_pods_serve() -> None:
    world = settled(Shape())
    seen = world.observed()
    (key,) = (key for key in seen.children if key[0] == "Deployment")
    children = {**seen.children, key: seen.children[key]._replace(message=REFUSED)}
    plan = sync(world.service, world.deps, replace(seen, children=children), world.now)
    (advice,) = (one["message"] for one in plan.status["conditions"] if one["type"] == "Advice")
    assert f"Deployment {key[1]} cannot create pods, and the pods that it has serve: {REFUSED}" in advice
    assert conditions(plan)["Ready"] == ("True", "Serving")
