"""Reads from a live cluster why a service is not ready."""

from collections.abc import Container, Iterable
from datetime import UTC, datetime

from ome_operator.api import InferenceService, Invalid
from ome_operator.cache.resources import SERVICE
from ome_operator.cli.live.cluster_from_manifests import build_cluster
from ome_operator.cli.live.operator_lease import find_late_operators
from ome_operator.cli.live.trees import KINDS, read_service_object, selector
from ome_operator.core.observed import from_api
from ome_operator.core.observed.kube_events import last_seen, start_failures
from ome_operator.core.observed.objects import Child, Manifest, Observed
from ome_operator.core.observed.slices import stored_revisions
from ome_operator.core.observed.starts import with_failures
from ome_operator.core.rollout import target
from ome_operator.describe.diagnosis import SeenEvent, ServiceTrouble, find_trouble
from ome_operator.describe.readiness import with_late_operator
from ome_operator.describe.tree import tree
from ome_operator.kube.client import Client
from ome_operator.kube.listing import list_all


async def read_trouble(client: Client, namespace: str, name: str) -> ServiceTrouble:
    """Return the problems of a service. Raises KubeError if a request fails, and NotFound if the service does not exist."""
    body = await read_service_object(client, namespace, name)
    parts = await list_all(client, KINDS, namespace, selector(name))
    there = build_cluster(parts)
    events = await list_all(client, ("Event",), namespace, optional=("Event",))
    seen = events_about(events, {from_api.uid(item) for item in (body, *parts)})
    pods = with_failures(there.pods_of(namespace, name), start_failures(events, datetime.now(UTC)))
    children = there.children_of(namespace, name)
    (silent,) = (await find_late_operators(client, [body], datetime.now(UTC))).values()
    seen_as = with_late_operator(tree(body, Observed(children, pods)), silent)
    status = body.get("status") or {}
    return find_trouble(
        seen_as, status.get("conditions") or (), seen, status.get("groups") or (), _back(body, children.values())
    )


def _back(body: Manifest, children: Iterable[Child]) -> str:
    """Return the name of the last complete revision, which `ome undo` would restore; "" if there is none."""
    service = InferenceService.parse(body) if body.get("kind", SERVICE) == SERVICE else None
    if service is None or isinstance(service, Invalid):
        return ""
    return target.find_target(service, {item.name: item.number for item in stored_revisions(children, service.uid)}).back


def events_about(events: Iterable[Manifest], uids: Container[str]) -> list[SeenEvent]:
    """Return the events about objects with these UIDs."""
    found = []
    for item in events:
        involved, at = item.get("involvedObject") or {}, last_seen(item)
        if involved.get("uid") not in uids or at is None:
            continue
        count = (item.get("series") or {}).get("count") or item.get("count") or 1
        named = f"{involved.get('kind')} {involved.get('name')}"
        found.append(
            SeenEvent(at, item.get("type") or "", item.get("reason") or "", named, item.get("message") or "", count)
        )
    return found
