"""Find out what would prevent new pods from starting: the pods of a new service, or of further groups that an edit adds."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ome_operator.cache.foreign_pods import ForeignPods
from ome_operator.cli.live import dry_run
from ome_operator.cli.live.second_copy import usage
from ome_operator.core.observed.objects import Manifest, Node, Pod
from ome_operator.core.placement.admission import has_capacity
from ome_operator.core.placement.capacity_check import revision_needs
from ome_operator.core.placement.claims import nodes_with_room, subtract_held
from ome_operator.core.placement.fit import Needs
from ome_operator.core.placement.kueue import is_queued
from ome_operator.core.placement.messages import without_capacity
from ome_operator.core.placement.quotas import QuotaChange, shortage
from ome_operator.core.reasons import Reason
from ome_operator.core.render import sample_pods
from ome_operator.describe.changes import ADDED, REMOVED
from ome_operator.describe.forecast import Forecast
from ome_operator.describe.outcome import TargetOutcome
from ome_operator.kube.client import Client
from ome_operator.kube.errors import AlreadyExists, Forbidden, Invalid, NotFound, NotServed

_LACKS = (Reason.WAITING_FOR_NODES, Reason.DOES_NOT_FIT)
"""Reasons of conditions that state which nodes are missing for the pods."""


def adds_pods(item: Forecast) -> bool:
    """Return whether an edit adds groups of engines and restarts none."""
    return not item.restarts and any(change.mark == ADDED and change.kind == "StatefulSet" for change in item.changes)


def changes_pods(item: Forecast) -> bool:
    """Return whether an edit restarts groups, or changes or adds objects that create pods."""
    return any(change.mark != REMOVED and change.kind in ("StatefulSet", "Deployment") for change in item.changes)


def lack_messages(conditions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the messages of those conditions that report a lack of nodes for models or roles. Each message occurs once."""
    messages = [str(one["message"]) for one in conditions if one["reason"] in _LACKS]
    return [text for text in dict.fromkeys(messages) if not any(text != other and other in text for other in messages)]


async def held_by_others(
    client: Client, after: TargetOutcome, namespace: str, nodes: Mapping[str, Node], mine: Sequence[Pod]
) -> str:
    """Return why the pods of a service find no free nodes now. Return "" if the pods find nodes, if the user may not read
    the pods on these nodes, or if a queue places the pods.
    """
    if is_queued(after.workloads) or not nodes:
        return ""
    asked = revision_needs(after.workloads, {role.component: role.groups for role in after.roles}, namespace, weights=True)
    return await explain_lack_of_nodes(client, asked, nodes, mine)


async def explain_lack_of_nodes(client: Client, asked: Needs, nodes: Mapping[str, Node], mine: Sequence[Pod]) -> str:
    """Return why pods do not fit on the nodes beside the pods of other owners; "" if they fit, or if the user may not read
    the pods on these nodes.

    `mine` are the pods of the service itself. The capacity that they use is treated as free.
    """
    uids = {pod.uid for pod in mine}
    others = ForeignPods(client, time.monotonic, lambda pod: (pod.get("metadata") or {}).get("uid") in uids)
    await others.read_nodes(nodes_with_room(asked, nodes))
    free = {name: subtract_held(node, others.requests_on(name)) for name, node in nodes.items()}
    return "" if has_capacity(asked, (), free) else without_capacity(asked, nodes, free, lambda _: ())


async def pod_refusals(client: Client, after: TargetOutcome, namespace: str) -> Sequence[str]:
    """Return the reasons for which pods of a service without pods would be refused: by the ResourceQuotas of the namespace,
    or by the API server in a dry run. Return () if no pod is refused, or if the user lacks the rights to find out.
    """
    return [text for text in (await _beyond_quota(client, after, namespace), await _refused(client, after)) if text]


async def _beyond_quota(client: Client, after: TargetOutcome, namespace: str) -> str:
    if is_queued(after.workloads):
        return ""
    try:
        quotas = await client.list_objects("ResourceQuota", namespace)
    except Forbidden:
        return ""
    return shortage(quotas, QuotaChange(tuple(usage(after))))


async def _refused(client: Client, after: TargetOutcome) -> str:
    """Return the API server's refusal of one of the pods, which are created in a dry run with the rights of the user."""
    for pod in _pods(after):
        try:
            await client.create(pod, dry_run=True)
        except (AlreadyExists, NotFound, NotServed):
            continue
        except (Invalid, Forbidden) as error:
            if not any(part in str(error) for part in (dry_run.CREATE_RIGHTS, "exceeded quota", "does not support dry run")):
                return str(error)
    return ""


def _pods(after: TargetOutcome) -> Iterator[Manifest]:
    """Yield a pod for each pod template. ServiceAccounts that the operator creates, and which may not exist yet, are left
    out.
    """
    accounts = {body["metadata"]["name"] for body in after.manifests if body["kind"] == "ServiceAccount"}
    done = []
    for body in after.manifests:
        if body["kind"] not in ("StatefulSet", "Deployment") or body["spec"]["template"]["spec"] in done:
            continue
        done.append(body["spec"]["template"]["spec"])
        ordinal = (body["spec"].get("ordinals") or {}).get("start", 0)
        pod = sample_pods.of_deployment(body) if body["kind"] == "Deployment" else sample_pods.of_stateful_set(body, ordinal)
        own = pod["spec"].get("serviceAccountName") in accounts
        yield {
            **pod,
            "spec": {name: value for name, value in pod["spec"].items() if not own or name != "serviceAccountName"},
        }
