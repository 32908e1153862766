"""Read a cluster, and answer whether the services of files would fit on its nodes now."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ome_operator import keys
from ome_operator.api import InferenceService, Invalid, migrate
from ome_operator.cache.cluster_cache import RECORD, ClusterCache
from ome_operator.cache.foreign_pods import total_requests
from ome_operator.cache.resources import CATALOG, SERVICE, SHORT
from ome_operator.cli.live.avoided import read_avoided_nodes
from ome_operator.cli.live.cluster_from_manifests import build_cluster, merge_edit, ref_of_body
from ome_operator.cli.live.trees import OURS
from ome_operator.core.observed.from_api import pod as pod_facts
from ome_operator.core.observed.objects import Manifest, Node, Ref
from ome_operator.core.placement.capacity_check import revision_needs
from ome_operator.core.resolve.inputs import resolve
from ome_operator.describe.fit import FitAnswer, Holder, fit_on_nodes
from ome_operator.describe.outcome import SURVIVES, TargetOutcome, compute_outcome
from ome_operator.kube.client import Client
from ome_operator.kube.listing import list_all

ENDED = ("Succeeded", "Failed")


async def services_that_fit(client: Client, given: Sequence[Manifest]) -> tuple[list[FitAnswer], list[str]]:
    """Return whether each service of these objects would fit now, and a sentence for each service that cannot be rendered.
    Models, runtimes and accelerator classes that are not among the objects are read from the cluster. If a service
    exists, its RoleScales determine the numbers of its groups. Raises KubeError if a request fails.
    """
    referred = await list_all(client, (SERVICE, *CATALOG, *SHORT, "Node", RECORD), optional=(RECORD,))
    lasting = await list_all(client, SURVIVES, selector=OURS, optional=SURVIVES)
    live = {ref_of_body(body): body for body in (*referred, *lasting)}
    agent = any(which.kind == RECORD for which in live)
    written = {
        ref_of_body(body): merge_edit(body, live[ref_of_body(body)]) if ref_of_body(body) in live else body for body in given
    }
    after = build_cluster({**live, **written}.values(), model_agent=agent)
    bad = await read_avoided_nodes(client)
    pods = [body for body in await client.list_objects("Pod") if (body.get("status") or {}).get("phase") not in ENDED]
    found, problems = list[FitAnswer](), list[str]()
    for resource in after.services():
        if resource.ref not in written:
            continue
        name, service = f"{resource.ref.namespace}/{resource.ref.name}", resource.parsed
        if isinstance(service, Invalid):
            problems.append(f"{name}: {service.why}")
            continue
        seen = compute_outcome(service, after.deps(), after.children_of(*resource.ref[1:]).values())
        if not seen.workloads or not _resolved(service, after):  # otherwise the workloads may belong to an older revision
            problems.append(f"{name}: {'; '.join(seen.problems) or 'it has no engine'}")
            continue
        away = bad.nodes_avoided_in(resource.ref.namespace)
        nodes = {key: node for key, node in after.deps().nodes.items() if key not in away}
        found.append(_answer(resource.ref, seen, nodes, pods))
    return found, problems


def _resolved(service: InferenceService, cluster: ClusterCache) -> bool:
    """Return whether all objects to which a service refers exist. The result is always True for a service that is pinned to
    a stored revision, which needs none of these objects.
    """
    rollout = migrate(service.spec).rollout
    return bool(rollout and rollout.revision) or not resolve(service, cluster.deps()).problems


def _answer(which: Ref, seen: TargetOutcome, nodes: Mapping[str, Node], pods: Sequence[Manifest]) -> FitAnswer:
    """Return whether a service fits on the nodes. `pods` are the pods of all namespaces; the pods of the service are
    ignored.
    """
    wanted = {role.component: role.groups for role in seen.roles}
    asked = revision_needs(seen.workloads, wanted, which.namespace, weights=True)
    on: dict[str, list[Manifest]] = {}
    for body in pods:
        if _owner(body) != (which.namespace, which.name):
            on.setdefault((body.get("spec") or {}).get("nodeName") or "", []).append(body)
    amounts = {key: total_requests(each, lambda _: False) for key, each in on.items()}
    answer = fit_on_nodes(which[1:], asked, nodes, amounts, {key: _holders(each) for key, each in on.items()})
    return replace(answer, groups={role.title: role.groups for role in seen.roles})


def _owner(body: Mapping[str, Any]) -> tuple[str, str]:
    metadata = body.get("metadata") or {}
    labels = metadata.get("labels") or {}
    ours = labels.get(keys.MANAGED_BY) == keys.MANAGER
    return metadata.get("namespace") or "", (labels.get(keys.SERVICE) or "") if ours else ""


def _holders(bodies: Sequence[Manifest]) -> list[Holder]:
    """Return the services, and the namespaces of other pods, that use GPUs of a node, in descending order of the number of
    GPUs. `bodies` are the pods of the node.
    """
    found = Counter[str]()
    for body in bodies:
        namespace, service = _owner(body)
        found[f"{namespace}/{service}" if service else f"pods of {namespace}"] += pod_facts(body).gpus
    return [Holder(who, gpus) for who, gpus in found.most_common() if gpus]
