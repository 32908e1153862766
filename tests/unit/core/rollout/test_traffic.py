"""Tests of the slices to which a Gateway sends requests, through complete rollouts (decisions 27)."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from ome_operator import keys, names
from ome_operator.core.observed import from_api, route
from ome_operator.core.observed.objects import Deps, Observed
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.rollout import traffic
from ome_operator.core.rollout.traffic import NOTICE, SETTLED
from tests.support import parts, routing
from tests.support.live import Live, LivePod
from tests.support.parts import change_deps
from tests.support.shapes import GATEWAY, Shape
from tests.support.simulator import World

ROUTE = ("HTTPRoute", "svc")


def world(shape: Shape, seed: int = 1) -> World:
    """Return a ready service behind a Gateway."""
    made = World(shape.service(), change_deps(shape.deps(), exposure=GATEWAY), seed)
    made.settle()
    return made


def edit(on: World, shape: Shape) -> None:
    """Let the user change the service or the runtime."""
    on.edit(shape.service(), change_deps(shape.deps(), exposure=GATEWAY))


def weights(on: World) -> dict[str, int]:
    """Return the weight of each revision in the stored route; "" stands for the Service that has the name of the
    InferenceService and belongs to no revision.
    """
    stored = route.weights(on.children[ROUTE].manifest)
    revisions = {name: live.labels.get(keys.REVISION, "") for (kind, name), live in on.children.items() if kind == "Service"}
    return {revisions[name]: weight for name, weight in stored.items()}


def services_of_slices(on: World) -> list[str]:
    """Return the names of the Services that belong to a revision."""
    return [name for (kind, name), live in on.children.items() if kind == "Service" and keys.REVISION in live.labels]


def revision(on: World) -> str:
    """Return the target revision of the service."""
    return str(on.service.status["revision"]).rpartition("→")[2]


def ready_groups(on: World) -> dict[str, int]:
    """Return the number of ready engines of each revision whose router is ready. Every group has one pod."""
    can = routing.serving_revisions(on.children.values(), on.pods.values())
    ready = [pod.labels for pod in on.pods.values() if pod.ready and not pod.deleting]
    return {
        name: sum(labels[keys.REVISION] == name and labels[keys.COMPONENT] == "engine" for labels in ready) for name in can
    }


def until(on: World, holds: Callable[[], Any], passes: int = 200) -> Any:
    """Run passes until the condition holds."""
    for _ in range(passes):
        if found := holds():
            return found
        on.run(1)
    raise AssertionError(on.log[-20:])


def test_each_slice_has_a_service_for_its_routers() -> None:
    shape = Shape(size=1)
    on = world(shape)
    (serves,) = weights(on)
    assert weights(on) == {revision(on): 1} and serves
    name = names.router("svc", serves)
    made, routers = on.children["Service", name].manifest, on.children["Deployment", name].manifest
    assert made["spec"]["selector"] == routers["spec"]["selector"]["matchLabels"]
    assert made["spec"]["ports"] == [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]


def test_route_targets_the_service_until_the_slice_has_its_own_service() -> None:
    """The route leads to the Service of the InferenceService until the slice has a Service of its own. A route to a Service
    that does not exist would answer every request with an error.
    """
    shape = Shape(size=1)
    on = World(shape.service(), change_deps(shape.deps(), exposure=GATEWAY), 1)
    on.carry_out(on.sync())
    assert route.weights(on.children[ROUTE].manifest) == {"svc": 1}


@pytest.mark.parametrize("seed", range(5))
def test_route_weights_equal_the_ready_groups_of_each_slice(seed: int) -> None:
    """While two slices serve, the weight of each is the number of its ready groups."""
    old = Shape(size=1, engines=4, strategy="surge")
    on = world(old, seed)
    edit(on, replace(old, image="b"))
    shares = set()
    for _ in range(100):
        on.carry_out(on.sync())
        if len(on.children) and len(found := ready_groups(on)) == 2 and len(weights(on)) == 2:
            kept = {name: count for name, count in weights(on).items() if count}
            if len(kept) == 2:
                (left, right) = kept
                assert kept[left] * found[right] == kept[right] * found[left], (kept, found)
                shares.add(tuple(sorted(kept.values())))
        on.step()
    assert len(shares) > 1, "the weights moved"
    on.settle()
    assert weights(on) == {revision(on): 1}


@pytest.mark.parametrize("strategy", ["", "surge", "blueGreen"])
def test_old_router_is_deleted_after_the_route_no_longer_targets_it(strategy: str) -> None:
    """The router of the old slice is deleted when the route has led away from it. The Service of the old slice is also
    deleted, once nothing of the slice is left.
    """
    old = Shape(size=1, engines=3, strategy=strategy)
    on = world(old)
    (first,) = weights(on)
    edit(on, replace(old, image="b"))
    gone: list[tuple[dict[str, int], float]] = []

    def watch(plan: Plan) -> None:
        if any((delete.kind, delete.name) == ("Deployment", names.router("svc", first)) for delete in plan.delete):
            passed = on.now - datetime.fromisoformat(on.children[ROUTE].changed)
            gone.append((weights(on), passed.total_seconds()))

    on.watcher = watch
    on.settle()
    (led, passed), *_ = gone
    assert led == {first: 0, revision(on): 1} and passed >= NOTICE
    assert ("Service", names.router("svc", first)) not in on.children
    assert weights(on) == {revision(on): 1}


@pytest.mark.parametrize(("strategy", "seed"), [("surge", 2), ("blueGreen", 1)])
def test_slice_receives_requests_after_its_router_was_ready_for_a_while(strategy: str, seed: int) -> None:
    """A new slice receives requests only when its router has been ready for a while, because Kubernetes updates endpoints
    after the router has become ready. Until then, the old router stays and serves.
    """
    old = Shape(size=1, strategy=strategy)
    on = world(old, seed)
    (first,) = weights(on)
    edit(on, replace(old, image="b"))
    waits = list[float | None]()

    def watch(plan: Plan) -> None:
        can = routing.serving_revisions(on.children.values(), on.pods.values()) - {first}
        routers = [pod for pod in on.pods.values() if pod.labels[keys.COMPONENT] == keys.ROUTER and pod.ready]
        since = {datetime.fromisoformat(pod.since) for pod in routers if pod.labels[keys.REVISION] in can}
        if any((on.now - moment).total_seconds() < SETTLED for moment in since):
            waits.append(plan.requeue_after)
            assert not any(delete.kind == "Deployment" for delete in plan.delete)
            assert not any(apply.manifest["kind"] == "HTTPRoute" for apply in plan.apply)

    on.watcher = watch
    on.settle()
    assert waits and all(again and again <= SETTLED for again in waits)
    assert weights(on) == {revision(on): 1} != {first: 1}


def test_route_weights_are_kept_while_routers_are_replaced() -> None:
    """Slices keep their shares of requests while their routers are replaced. In the middle of a rollout, new routers have
    not been ready for long enough, and a large slice must not leave all requests to a small slice because of that.
    """
    old = Shape(size=1, engines=4, strategy="surge")
    on = world(old, 2)
    (first,) = weights(on)
    on.healthy = lambda pod: (
        pod.labels[keys.COMPONENT] == keys.ROUTER
        or pod.labels[keys.REVISION] == first
        or pod.labels[keys.GROUP_INDEX] == "0"
    )
    edit(on, replace(old, image="b"))
    on.run(60)
    second = revision(on)
    assert weights(on) == {first: 3, second: 1}
    surge = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    on.edit(parts.service(engine={"minReplicas": 4}, router={"labels": {"a": "b"}}, rollout=surge))
    before, seen = {pod.uid for pod in on.pods.values()}, 0
    for _ in range(60):
        on.carry_out(on.sync())
        if routing.serving_revisions(on.children.values(), on.pods.values()) == {first, second}:
            assert weights(on) == {first: 3, second: 1}
            seen += 1
        on.step()
    replaced = [pod for pod in on.pods.values() if pod.uid not in before and pod.labels[keys.COMPONENT] == keys.ROUTER]
    assert seen > 20 and {pod.labels[keys.REVISION] for pod in replaced} == {first, second}


@pytest.mark.parametrize(
    ("since", "left"),
    [((1, 9), 0), ((1,), 4), ((1, 2), 3), ((-3,), 8), ((-6,), 0), ((-100,), 0), ((None,), 0)],
    ids=str,
)
def test_slice_receives_requests_once_its_router_is_long_ready(since: tuple[float | None, ...], left: float) -> None:
    """A slice may receive requests when the first of its routers has been ready for long enough. A node whose clock is
    ahead delays it only briefly. `since` contains how many seconds ago each router became ready.
    """
    now = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
    pod = LivePod("r", "u", {keys.COMPONENT: keys.ROUTER, keys.REVISION: "r"}, "svc-router-r-5b9", "u-set", 30, ready=True)
    moments = ["" if ago is None else (now - timedelta(seconds=ago)).isoformat() for ago in since]
    pods = tuple(replace(pod, since=moment).facts(parts.service()) for moment in moments)
    seen = Snapshot(parts.service(), Deps(), Observed(pods=pods), now)
    assert traffic._settles(seen, "r") == left


def test_first_slice_receives_requests_immediately() -> None:
    """The first slice of a service gets requests at once, because no other slice could answer them."""
    shape = Shape(size=1)
    on = World(shape.service(), change_deps(shape.deps(), exposure=GATEWAY), 1)
    until(on, lambda: routing.serving_revisions(on.children.values(), on.pods.values()))
    on.carry_out(on.sync())
    assert weights(on) == {revision(on): 1}


def test_blue_green_slice_has_no_router_until_it_is_complete() -> None:
    """With blue-green, the slice has no router from its first pass until it is complete, and the route stays unchanged."""
    old = Shape(size=1, engines=2, strategy="blueGreen")
    on = world(old)
    (first,) = weights(on)
    on.healthy = lambda pod: pod.labels[keys.REVISION] == first or pod.labels.get(keys.GROUP_INDEX) == "0"
    edit(on, replace(old, image="b"))
    on.run(40)
    assert weights(on) == {first: 1}
    on.healthy = lambda _: True
    on.settle()
    assert weights(on) == {revision(on): 1} != {first: 1}


def test_reverted_rollout_routes_back_to_the_old_slice() -> None:
    old = Shape(size=1, engines=3, strategy="surge")
    on = world(old)
    (first,) = weights(on)
    edit(on, replace(old, image="b"))
    until(on, lambda: len([weight for weight in weights(on).values() if weight]) == 2)
    edit(on, replace(old, pin=first, image="b"))
    on.settle()
    assert weights(on) == {first: 1}
    assert services_of_slices(on) == [names.router("svc", first)]


def test_recreate_routes_to_the_old_slice_until_the_new_one_can_serve() -> None:
    """If the old slice is removed before the new one can serve, the removal does not wait for the route, because no other
    slice can answer. The route leads to the old slice until the new one can serve.
    """
    old = Shape(size=1, strategy="recreate")
    on = world(old)
    (first,) = weights(on)
    edit(on, replace(old, image="b"))
    began = on.now
    until(on, lambda: ("Deployment", names.router("svc", first)) not in on.children)
    assert weights(on) == {first: 1} and on.now - began < timedelta(seconds=NOTICE + 10)
    on.settle()
    assert weights(on) == {revision(on): 1}


def test_slice_without_ready_groups_is_removed_without_delay() -> None:
    old = Shape(size=1, strategy="surge")
    on = world(old)
    on.healthy = lambda pod: pod.labels[keys.COMPONENT] == keys.ROUTER
    edit(on, replace(old, image="b"))
    until(on, lambda: len(routing_deployments(on)) == 2)
    broken = revision(on)
    edit(on, replace(old, image="a"))
    until(on, lambda: names.router("svc", broken) not in routing_deployments(on), 2)


def routing_deployments(on: World) -> list[str]:
    """Return the names of the routers' Deployments."""
    return [name for kind, name in on.children if kind == "Deployment"]


def test_route_falls_back_to_the_service_if_the_slice_service_name_is_taken() -> None:
    """If another user's object has the name of a slice's Service, the route leads to the Service of the InferenceService
    instead. The rollout continues, and the condition RouterReady reports the problem.
    """
    old = Shape(size=1, strategy="surge")
    on = world(old)
    edit(on, replace(old, image="b"))
    until(on, lambda: revision(on) not in weights(on) and "→" in str(on.service.status["revision"]))
    name = names.router("svc", revision(on))
    taken = {"kind": "Service", "metadata": {"name": name, "labels": {}}}
    on.children["Service", name] = Live(taken, "uid-of-theirs", 1, "somebody", "", "")
    for _ in range(60):
        on.run(1)
    assert weights(on) == {"": 1}
    assert len(routing_deployments(on)) == 1
    assert on.condition("RouterReady")["reason"] == "NameTaken"
    assert on.condition("Ready")["status"] == "True"


def test_route_targets_the_engines_before_a_removed_router_is_deleted() -> None:
    """If a user removes the router from the service, the route leads to the engines before the router is deleted."""
    shape = Shape(size=1)
    on = world(shape)
    edit(on, replace(shape, router=False))
    on.settle()
    assert weights(on) == {"": 1}
    assert services_of_slices(on) == []


def test_route_and_slice_services_are_deleted_if_routing_is_disabled() -> None:
    """The route and the Services of slices are deleted if the service has the annotation that excludes it, or if the
    operator is configured to create no routes.
    """
    shape = Shape(size=1)
    for change in ("annotation", "setting"):
        on = world(shape)
        if change == "annotation":
            notes = {"ome.io/ingress-disable-creation": "true"}
            service = parts.service(engine={"minReplicas": 1}, router={}, annotations=notes)
            on.edit(service)
        else:
            on.edit(deps=shape.deps())
            del on.children[ROUTE]  # this kind is not watched any more; `former_exposure.remove` deletes it
        on.settle()
        assert ROUTE not in on.children
        assert services_of_slices(on) == [], change


@pytest.mark.parametrize(("changed", "waits"), [(-1, True), (-NOTICE, False), (30, True), (9999, False)])
def test_clock_skew_delays_the_route_only_briefly(changed: float, waits: bool) -> None:
    """The API server's clock dates a change of the route. The wait after the change ends even if that clock is far ahead."""
    now = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
    since = (now + timedelta(seconds=changed)).isoformat()
    assert (route.seconds_since(since, now) < NOTICE) is waits
    assert route.seconds_since("", now) == float("inf")


def test_route_weights_are_scaled_to_the_gateway_api_maximum() -> None:
    assert [traffic._fitting(weight, 3_000_000) for weight in (3_000_000, 1, 0)] == [1_000_000, 1, 0]


def test_age_of_a_route_comes_from_managed_fields() -> None:
    """A route is as old as the operator's own entry in managedFields, because a Gateway writes the status all the time."""
    theirs = {"manager": "gateway", "operation": "Update", "subresource": "status", "time": "2026-01-01T00:09:00Z"}
    ours = {"manager": "ome-operator", "operation": "Apply", "time": "2026-01-01T00:01:00Z"}
    backends = [{"name": "a", "weight": 0}, {"name": "b"}]
    body = {"metadata": {"managedFields": [theirs, ours]}, "spec": {"rules": [{"backendRefs": backends}]}}
    child = from_api.child("HTTPRoute", body)
    assert child.content == {"weights": {"a": 0, "b": 1}, "changed": "2026-01-01T00:01:00Z"}
    now = datetime.fromisoformat("2026-01-01T00:01:20+00:00")
    assert route.seconds_since(child.content["changed"], now) == 20
    assert from_api.child("HTTPRoute", {"metadata": {}, "spec": {}}).content == {"weights": {}, "changed": ""}
