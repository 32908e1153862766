"""Each law of `invariants.py` is violated once, because a law that never fails would check nothing."""

from collections.abc import Callable
from datetime import timedelta
from inspect import getmembers, isfunction
from types import FunctionType, ModuleType
from typing import Any

import pytest

from ome_operator import keys, names
from ome_operator.core.observed.objects import Deps
from ome_operator.core.reconcile.plan import Apply, Delete, Patch, Plan
from tests.support import invariants as laws
from tests.support import parts, routing
from tests.support.live import Live, LivePod
from tests.support.parts import change_deps
from tests.support.simulator import START

SERVICE = parts.service(engine={"minReplicas": 2}, router={})
ENGINE, ROUTER = {keys.COMPONENT: keys.ENGINE, keys.REVISION: "old"}, {keys.COMPONENT: keys.ROUTER, keys.REVISION: "old"}
WORKERS = {**ENGINE, keys.GROUP_INDEX: "1"}
LEADERS = {**WORKERS, keys.WORKER_INDEX: "0"}


def live(kind: str, labels: dict[str, str] = LEADERS, owner: str = parts.UID, **more: Any) -> Live:
    """Return an object of the service."""
    body = {"kind": kind, "metadata": {"name": "svc-engine", "labels": labels}, **more}
    return Live(body, "uid", 1, owner, "", "")


def pod(labels: dict[str, str] = LEADERS, group: int = 1, draining: str = "", ready: bool = True) -> LivePod:
    """Return a pod."""
    place = {keys.GROUP_INDEX: str(group), keys.POD_INDEX: "0"}
    return LivePod(f"p-{group}", "p", {**labels, **place}, "svc", "uid", 30, ready, draining=draining)


def sets(replicas: int = 1, template: str = "a") -> dict[str, Any]:
    return {"spec": {"replicas": replicas, "template": template, "selector": template}}


def scale(replicas: int) -> list[Live]:
    """Return a RoleScale with the autoscaler's number of engines."""
    return [live("RoleScale", ENGINE, spec={"replicas": replicas})]


def gone(**more: Any) -> Live:
    found = live("Service", **more)
    found.deleting = True
    return found


def slices(weight: int, changed: timedelta = timedelta(hours=1)) -> dict[Any, Live]:
    """Return two slices with a group and a router each, and an HTTPRoute. The route leads to the new slice and, with this
    weight, to the old slice.
    """
    out = {}
    for revision in ("old", "new"):
        name = names.router("svc", revision)
        group = Live(
            {"kind": "StatefulSet", "metadata": {"name": revision, "labels": of(revision)}, "spec": {"replicas": 1}},
            f"set-{revision}",
            1,
            parts.UID,
            "",
            "",
        )
        out[group.key] = group
        for kind in ("Deployment", "Service"):
            out[kind, name] = live(kind, {keys.COMPONENT: keys.ROUTER, keys.REVISION: revision})
    backends = [{"name": names.router("svc", "new"), "weight": 1}, {"name": names.router("svc", "old"), "weight": weight}]
    out["HTTPRoute", "svc"] = live("HTTPRoute", {keys.SERVICE: "svc"}, spec={"rules": [{"backendRefs": backends}]})
    out["HTTPRoute", "svc"].changed = (START - changed).isoformat()
    return out


def of(revision: str) -> dict[str, str]:
    """Return the labels of the leader of a revision's group."""
    return {**LEADERS, keys.REVISION: revision}


def answer(*revisions: str) -> list[LivePod]:
    """Return the pods of slices that can serve requests."""
    groups = [LivePod(f"e-{revision}", "e", of(revision), "", f"set-{revision}", 30, True) for revision in revisions]
    return [*groups, *(pod({**ROUTER, keys.REVISION: revision}) for revision in revisions)]


def fresh(seconds: int) -> list[LivePod]:
    """Return the pods of both slices, the old slice first. The router of the new slice has been ready for this number of
    seconds.
    """
    old, new = answer("old"), answer("new")
    new[-1].since = (START - timedelta(seconds=seconds)).isoformat()
    return [*old, *new]


LED = {names.router("svc", "old")}
GOES = (Delete("Deployment", names.router("svc", "old"), "uid"),)
BOTH = answer("old", "new")
TWO = [pod(group=0), pod(group=1)]
THREE = [*TWO, pod(group=2)]
SCALED = parts.service(engine={"minReplicas": 1, "maxReplicas": 3, "scaleMetric": "cpu"})
JUST_NOW = [pod(draining=(START - timedelta(seconds=1)).isoformat())]
STARTS = {**LEADERS, keys.REVISION: "new", keys.GROUP_INDEX: "0"}
AGAIN = {"kind": "StatefulSet", "metadata": {"name": "svc-engine-1", "labels": LEADERS}}
BESIDE = live("StatefulSet", {**LEADERS, keys.GROUP_INDEX: "0"})
RECREATE = parts.service(engine={"minReplicas": 3}, rollout={"recreate": {}})
HELD = Deps(frozen="true")
GROUP = {"kind": "StatefulSet", "metadata": {"name": "svc-engine-1"}}
SEEN = {"conditions": [{"type": "Frozen", "reason": "Frozen"}]}
MARKS = Patch("Pod", "p", "uid", {"metadata": {"annotations": {keys.DRAINING: "now"}}})
ROLE = (keys.ENGINE,)
"""The roles whose gangs release their nodes in the cases below."""
BREACHES: list[tuple[Callable[..., None], tuple[Any, ...], dict[str, Any]]] = [
    (laws.a_pass_changes_no_input_and_decides_the_same_again, (1, 2, Plan(), Plan()), {}),
    (laws.a_pass_changes_no_input_and_decides_the_same_again, (1, 1, Plan(), Plan(requeue_after=1.0)), {}),
    (laws.a_service_that_is_held_is_only_told_of, (SERVICE, HELD, Plan(status=SEEN, apply=(Apply(GROUP, ""),))), {}),
    (laws.a_service_that_is_held_is_only_told_of, (SERVICE, HELD, Plan(status=SEEN, patch=(MARKS,))), {}),
    (
        laws.a_service_that_is_held_is_only_told_of,
        (SERVICE, HELD, Plan(status=SEEN, delete=(Delete("Pod", "p", "uid"),))),
        {},
    ),
    (laws.a_service_that_is_held_is_only_told_of, (SERVICE, HELD, Plan(status={"conditions": []})), {}),
    (laws.a_service_that_is_held_is_only_told_of, (SERVICE, change_deps(Deps(), observe=True), Plan(status=SEEN)), {}),
    (laws.a_change_meets_the_object_that_is_meant, (("Service", "svc"), None, "uid"), {}),
    (laws.a_change_meets_the_object_that_is_meant, (("Service", "svc"), live("Service"), "another"), {}),
    (laws.nothing_is_written_while_it_goes, (gone(),), {}),
    (laws.a_stored_revision_never_changes, (live("ControllerRevision", data={"a": 1}), {"data": {"a": 2}}), {}),
    (laws.nothing_of_a_stateful_set_changes, (live("StatefulSet", **sets()), sets(template="b")), {}),
    (laws.nothing_of_a_stateful_set_changes, (live("StatefulSet", **sets()), sets(0)), {}),
    (laws.the_selector_of_a_deployment_never_changes, (live("Deployment", **sets(2)), sets(2, "b")), {}),
    (laws.nothing_of_somebody_else_is_deleted, (SERVICE, live("Service", owner="somebody")), {}),
    (laws.leaders_go_before_their_workers, ([pod()], live("StatefulSet", WORKERS)), {}),
    (laws.leaders_go_before_their_workers, ([pod()], live("StatefulSet", WORKERS), ROLE), {}),
    (laws.a_leader_that_routers_know_is_drained_before_it_stops, ([pod(), pod(ROUTER)], live("StatefulSet"), START), {}),
    (laws.a_leader_that_routers_know_is_drained_before_it_stops, ([*JUST_NOW, pod(ROUTER)], live("StatefulSet"), START), {}),
    (
        laws.a_number_is_given_again_only_when_nothing_of_its_group_is_left,
        ([], [live("StatefulSet", WORKERS)], [], AGAIN),
        {},
    ),
    (laws.a_number_is_given_again_only_when_nothing_of_its_group_is_left, ([BESIDE], [], [pod()], AGAIN), {}),
    (laws.a_group_starts_beside_another_revision_only_within_the_surge, (SERVICE, [], TWO, STARTS), {"current": True}),
    (laws.a_group_starts_beside_another_revision_only_within_the_surge, (SCALED, scale(2), TWO, STARTS), {"current": True}),
    (
        laws.a_group_starts_beside_another_revision_only_within_the_surge,
        (SCALED, scale(9), THREE, STARTS),
        {"current": True},
    ),
    (laws.a_group_starts_beside_another_revision_only_within_the_surge, (RECREATE, [], [pod()], STARTS), {"current": False}),
    (routing.a_route_leads_away_before_a_router_goes, (slices(1), BOTH, GOES, START), {}),
    (routing.a_route_leads_away_before_a_router_goes, (slices(0, timedelta(seconds=1)), BOTH, GOES, START), {}),
    (routing.a_route_leads_to_what_serves, (slices(0), answer("old")), {}),
    (routing.a_route_leads_to_what_serves, ({("HTTPRoute", "svc"): slices(0)["HTTPRoute", "svc"]}, []), {}),
    (routing.requests_move_to_what_has_settled, (slices(0), fresh(4), LED, START), {}),
]


@pytest.mark.parametrize(("law", "facts", "more"), BREACHES, ids=lambda one: getattr(one, "__name__", ""))
def test_invariant_reports_each_violation(law: Callable[..., None], facts: tuple[Any, ...], more: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        law(*facts, **more)


def test_permitted_states_violate_no_invariant() -> None:
    long_ago = (START - timedelta(hours=1)).isoformat()
    routed = [pod(draining=long_ago), pod(ROUTER)]
    laws.a_leader_that_routers_know_is_drained_before_it_stops(routed, live("StatefulSet"), START)
    laws.a_leader_that_routers_know_is_drained_before_it_stops([pod()], live("StatefulSet"), START)
    laws.leaders_go_before_their_workers([pod(group=0)], live("StatefulSet", WORKERS))
    laws.leaders_go_before_their_workers([pod(ready=False)], live("StatefulSet", WORKERS), ROLE)
    laws.leaders_go_before_their_workers([pod()], live("StatefulSet", WORKERS), (*ROLE, keys.DECODER))
    laws.nothing_of_a_stateful_set_changes(live("StatefulSet", **sets()), sets())
    laws.a_number_is_given_again_only_when_nothing_of_its_group_is_left([BESIDE], [BESIDE], [pod(group=0)], AGAIN)
    laws.a_number_is_given_again_only_when_nothing_of_its_group_is_left([], [BESIDE], [pod()], AGAIN)
    laws.a_group_starts_beside_another_revision_only_within_the_surge(SERVICE, [], [pod()], STARTS, current=True)
    laws.a_group_starts_beside_another_revision_only_within_the_surge(SCALED, scale(3), TWO, STARTS, current=True)
    routing.a_route_leads_away_before_a_router_goes(slices(0), BOTH, GOES, START)
    routing.a_route_leads_away_before_a_router_goes(slices(1), answer("old"), GOES, START)
    routing.a_route_leads_to_what_serves(slices(1), BOTH)
    routing.a_route_leads_to_what_serves(slices(0), [])
    routing.requests_move_to_what_has_settled(slices(0), fresh(5), LED, START)
    routing.requests_move_to_what_has_settled(slices(0), fresh(4)[2:], LED, START)


def is_law(page: ModuleType, law: FunctionType) -> bool:
    """Return whether a function of the module `invariants` is a law: it returns nothing and raises if the law
    is violated.
    """
    return law.__module__ == page.__name__ and law.__name__[0] != "_" and law.__annotations__["return"] is None


def test_documentation_lists_every_invariant_and_each_is_tested() -> None:
    found = {name for page in (laws, routing) for name, law in getmembers(page, isfunction) if is_law(page, law)}
    listed = {line[2:] for line in (laws.__doc__ or "").splitlines() if line.startswith("* ")}
    assert found == listed == {law.__name__ for law, _, _ in BREACHES}
