"""Decides which check pods `ome preflight` creates, for services of files or for a service of the cluster. Services whose
pods could not start are named with the reason, because a check would only wait for them.
"""

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ome_operator import keys
from ome_operator.api import InferenceService, Invalid
from ome_operator.cache.cluster_cache import RECORD, ClusterCache
from ome_operator.cache.resources import CATALOG, SERVICE, SHORT, Resource
from ome_operator.cli.live.cluster_from_manifests import build_cluster
from ome_operator.cli.live.linted import with_validator
from ome_operator.cli.live.pod_references import absent
from ome_operator.cli.live.trees import read_service_object, selector
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.placement.capacity_check import revision_needs
from ome_operator.core.placement.fit import find_unplaced, ignores_fit
from ome_operator.core.preflight.on_demand import Trial, trial
from ome_operator.describe.outcome import SURVIVES, TargetOutcome, compute_outcome
from ome_operator.errors import QuestionUnanswered
from ome_operator.kube.client import Client
from ome_operator.kube.errors import Forbidden
from ome_operator.kube.listing import list_all, listed_around
from ome_operator.kube.resources import RESOURCES


class _Cluster(NamedTuple):
    """The objects of the cluster to which services may refer."""

    cache: ClusterCache
    nodes_known: bool
    """Whether the user may list nodes. If not, the cache has no nodes, and only the scheduler knows whether pods fit."""


async def of_files(
    client: Client, given: Sequence[Manifest], roles: Collection[str], within: int
) -> tuple[list[Trial], list[str]]:
    """Return a trial for all groups of each service in these files, and a sentence for each service whose pods could not
    start. Raises KubeError if a request fails. `within` is the time limit of the check in seconds.
    """
    spaces = {body["metadata"].get("namespace", "") for body in given if body["kind"] in (SERVICE, *SHORT)} - {""}
    cluster = await _read(client, spaces, given)
    trials, problems = list[Trial](), list[str]()
    for resource in cluster.cache.services():
        try:
            outcome = _outcome(resource, cluster.cache)
            groups = {role.component: max(1, role.groups) for role in outcome.roles}
            trials.append(await _trial(client, resource, cluster, outcome, groups, roles, within))
        except QuestionUnanswered as error:
            problems.append(str(error).rstrip("."))
    return trials, problems


async def of_service(client: Client, namespace: str, name: str, roles: Collection[str], within: int) -> Trial:
    """Return a trial for one more group of each role of a service. Raises KubeError if a request fails, NotFound if the
    service does not exist, and QuestionUnanswered if its pods could not start. `within` is the time limit of the check in
    seconds.
    """
    body = await read_service_object(client, namespace, name)
    kept = await list_all(client, sorted(SURVIVES), namespace, selector(name))
    cluster = await _read(client, {namespace}, [*kept, body])
    resource = next((each for each in cluster.cache.services() if each.ref[1:] == (namespace, name)), None)
    if resource is None:
        raise QuestionUnanswered(
            f"no InferenceService can be derived from {namespace}/{name} yet: `ome explain {name} -n {namespace}` shows why."
        )
    outcome = _outcome(resource, cluster.cache)
    return await _trial(client, resource, cluster, outcome, {role.component: 1 for role in outcome.roles}, roles, within)


async def _read(client: Client, namespaces: Collection[str], given: Sequence[Manifest]) -> _Cluster:
    """Return the objects to which services may refer: the objects of the cluster, and the objects `given`, which take
    precedence over objects of the cluster with the same name.
    """
    # Namespaced objects of sglang.ai are left out: services would be derived from them, and would be checked, too.
    kinds = (*CATALOG, *(kind for kind in SHORT if not RESOURCES[kind].namespaced), RECORD)
    there = await listed_around(client, kinds, sorted(namespaces), optional=(RECORD,))
    try:
        nodes, nodes_known = await list_all(client, ("Node",)), True
    except Forbidden:
        nodes, nodes_known = [], False
    agent = any(body["kind"] == RECORD for body in there)
    return _Cluster(build_cluster([*there, *nodes, *given], model_agent=agent), nodes_known)


def _outcome(resource: Resource, cluster: ClusterCache) -> TargetOutcome:
    """Return the objects that the operator would create for a service. Raises QuestionUnanswered if they cannot be computed,
    if the operator would refuse them, or if they contain no pods.
    """
    which, service = resource.ref, resource.parsed
    if not isinstance(service, InferenceService):
        why = service.why if isinstance(service, Invalid) else "the object is not an InferenceService"
        raise QuestionUnanswered(f"the InferenceService {which.name} in namespace {which.namespace} cannot be read: {why}.")
    children = cluster.children_of(which.namespace, which.name).values()
    outcome = compute_outcome(service, with_validator(cluster.deps()), children)
    if not outcome.workloads:
        why = "; ".join(outcome.problems) or "nothing to run"
        raise QuestionUnanswered(f"{which.namespace}/{which.name} has no pods: {why}")
    return outcome


async def _trial(
    client: Client,
    resource: Resource,
    cluster: _Cluster,
    outcome: TargetOutcome,
    groups: Mapping[str, int],
    roles: Collection[str],
    within: int,
) -> Trial:
    """Return the check pods of a service. Raises QuestionUnanswered if the service has none of the roles `roles`, if no node
    can hold the pods, or if an object is missing that they need. `within` is the time limit of the check in seconds.
    """
    which = resource.ref
    wanted = {name: number for name, number in groups.items() if not roles or name in roles}
    if not wanted:
        has = ", ".join(role.title for role in outcome.roles)
        raise QuestionUnanswered(f"{which.namespace}/{which.name} has no such role: set --role to one of {has}.")
    if why := _without_nodes(resource, cluster, outcome, wanted):
        raise QuestionUnanswered(f"{which.namespace}/{which.name}: {why}")
    made = trial(which.name, which.namespace, outcome.workloads, wanted, uuid.uuid4().hex[:8], within)
    if missing := await absent(client, which.namespace, [pod["spec"] for pod in made.pods.values()]):
        raise QuestionUnanswered(f"{which.namespace}/{which.name}: {'; '.join(missing)}")
    return made


def _without_nodes(resource: Resource, cluster: _Cluster, outcome: TargetOutcome, groups: Mapping[str, int]) -> str:
    """Return a sentence that states which pods of these groups no node could hold even if all nodes were empty, and why; ""
    if there are nodes for all pods, if the user may not list nodes, or if the annotation `ome.io/ignore-fit` of the service
    states that nodes are created for pods.
    """
    service = resource.parsed
    if not cluster.nodes_known or ignores_fit(service.annotations):
        return ""
    nodes = cluster.cache.deps().nodes
    if not nodes:
        return "the cluster has no nodes, so there is nothing to check"
    counted = {role.component: groups.get(role.component, 0) for role in outcome.roles}
    found = find_unplaced(revision_needs(outcome.workloads, counted, resource.ref.namespace, weights=True), nodes)
    if not found:
        return ""
    return (
        f"the nodes could not hold its pods even if they were empty: {'; '.join(lack.sentence for lack in found)}. "
        f'If an autoscaler creates nodes for pods, annotate the service with {keys.IGNORE_FIT}: "true"'
    )
