"""Three laws of `invariants.py` about an HTTPRoute: which slices get requests from a Gateway while slices are added and
removed.

Which slices serve is computed here independently of the planner, from objects and pods.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from ome_operator import keys, names
from ome_operator.core.observed import route
from ome_operator.core.reconcile.plan import Delete
from ome_operator.core.rollout.traffic import NOTICE, SETTLED
from tests.support.live import Key, Live, LivePod


def serving_revisions(objects: Iterable[Live], pods: Iterable[LivePod]) -> set[str]:
    """Return the revisions that can serve: those with a ready router and, in each role, with a group whose pods are all
    ready.
    """
    pods = list(pods)
    out = {pod.labels[keys.REVISION] for pod in pods if pod.labels[keys.COMPONENT] == keys.ROUTER and _ready(pod)}
    sets = [live for live in objects if live.key[0] == "StatefulSet" and keys.REVISION in live.labels]
    for revision in list(out):
        mine = [live for live in sets if live.labels[keys.REVISION] == revision]
        roles = {live.labels[keys.COMPONENT] for live in mine}
        if not roles or not all(_whole(mine, role, pods) for role in roles):
            out.remove(revision)
    return out


def a_route_leads_away_before_a_router_goes(
    objects: Mapping[Key, Live], pods: Iterable[LivePod], deletes: Iterable[Delete], now: datetime
) -> None:
    """A router that can serve is removed only some time after the route has moved to other slices, if any remaining slice
    can serve.
    """
    found = _route(objects)
    if found is None:
        return
    goes = {live.name for live in deletes if live.kind == "Deployment"}
    can = {names.router(_service(found), revision) for revision in serving_revisions(objects.values(), pods)}
    stay = {name for name in can - goes if ("Deployment", name) in objects}
    weights, passed = route.weights(found.manifest), (now - datetime.fromisoformat(found.changed)).total_seconds()
    for name in goes & can if stay else ():
        assert not weights.get(name), f"router {name} is removed while the route leads to it: {weights}, {sorted(stay)} stay"
        assert passed >= NOTICE, f"router {name} is removed only {passed} s after the route was changed: {weights}"


def a_route_leads_to_what_serves(objects: Mapping[Key, Live], pods: Iterable[LivePod]) -> None:
    """The route refers to existing Services. If any slice can serve, the route refers only to such slices."""
    found = _route(objects)
    if found is None:
        return
    leads = led(objects)
    assert leads, "the route refers to no Service"
    assert all(("Service", name) in objects for name in leads), f"the route refers to {leads}, some of which do not exist"
    if _service(found) in leads:
        both = f"the route refers to the Service of all routers and also to Services of single slices: {leads}"
        assert leads == {_service(found)}, both
        return  # that Service selects every ready router
    can = {names.router(_service(found), revision) for revision in serving_revisions(objects.values(), pods)}
    assert not can or leads <= can, f"the route refers to {leads}, but only {can} can answer"


def led(objects: Mapping[Key, Live]) -> set[str]:
    """Return the names of the Services to which the stored HTTPRoute refers."""
    found = _route(objects)
    return {name for name, weight in route.weights(found.manifest).items() if weight} if found else set()


def requests_move_to_what_has_settled(
    objects: Mapping[Key, Live], pods: Iterable[LivePod], before: set[str], now: datetime
) -> None:
    """While a slice that received requests `before` still exists and can serve, a slice whose first router has only just
    become ready receives no requests.
    """
    found, pods = _route(objects), list(pods)
    if found is None or _service(found) in before | led(objects):
        return
    ripe = {
        names.router(_service(found), pod.labels[keys.REVISION])
        for pod in pods
        if pod.labels[keys.COMPONENT] == keys.ROUTER and _ready(pod)
        and (not pod.since or (now - datetime.fromisoformat(pod.since)).total_seconds() >= SETTLED)
    }  # fmt: skip
    can = {names.router(_service(found), revision) for revision in serving_revisions(objects.values(), pods)}
    new = led(objects) - before
    if any(("Deployment", name) in objects for name in can & before):
        assert new <= ripe, f"the route now refers to {new}, whose routers are new, although {before} can still answer"


def _route(objects: Mapping[Key, Live]) -> Live | None:
    return next((live for key, live in objects.items() if key[0] == "HTTPRoute"), None)


def _service(live: Live) -> str:
    return live.labels[keys.SERVICE]


def _whole(sets: Iterable[Live], role: str, pods: list[LivePod]) -> bool:
    """Return whether a role has a group that has all its pods, and whose pods are all ready."""
    sets = [live for live in sets if live.labels[keys.COMPONENT] == role]
    for group in {live.labels[keys.GROUP_INDEX] for live in sets}:
        mine = [live for live in sets if live.labels[keys.GROUP_INDEX] == group]
        there = sum(_ready(pod) for pod in pods if pod.workload_uid in {live.uid for live in mine})
        if there == sum(live.manifest["spec"]["replicas"] for live in mine):
            return True
    return False


def _ready(pod: LivePod) -> bool:
    return pod.ready and not pod.deleting
