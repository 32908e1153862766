"""Read the children of a service by their owner. Labels alone prove nothing: StatefulSets store ControllerRevisions with the
labels of their pods, and anybody can copy labels.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ome_operator import keys
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.resources import SERVICE
from ome_operator.core.observed.objects import Child, Pod, Ref
from ome_operator.core.observed.slices import controlled_or_adoptable
from ome_operator.core.render.statefulsets import StoredRole, roles_by_component


def owned_children(cluster: ClusterCache, kind: str, service: Ref) -> Iterator[Child]:
    """Yield the children of the kind `kind` that the service `service` controls now, or may adopt."""
    found = cluster.find_resource(service)
    if found is not None:
        group = cluster.children[kind].group((service.namespace, service.name))
        yield from (child for child in group if controlled_or_adoptable(child, found.uid))


def own_routers(cluster: ClusterCache, service: Ref) -> list[Pod]:
    """Return the pods of routers whose Deployment the service `service` controls now."""
    deployments = {child.name for child in owned_children(cluster, "Deployment", service) if child.owner}
    return [
        pod
        for pod in cluster.pods_of(service.namespace, service.name)
        if pod.component == keys.ROUTER
        and pod.workload.rpartition("-")[0] in deployments  # the Deployment owns the pod through a ReplicaSet
    ]


def revision(cluster: ClusterCache, service: Ref, name: str) -> Mapping[str, Any]:
    """Return the data of a stored revision of the service that has this name now; {} if there is none. Anybody may have
    written this data, so parsing the data may raise AttributeError, KeyError, TypeError or ValueError.
    """
    return next((data for _, data in _named(owned_children(cluster, "ControllerRevision", service), name)), {})


def stored_roles(cluster: ClusterCache, service: Ref, name: str) -> Mapping[str, StoredRole]:
    """Return the roles of a stored revision of the service that has this name now; {} if there is none. Raises
    AttributeError, KeyError, TypeError or ValueError if somebody else has written data that the operator never stores.
    """
    return roles_by_component(revision(cluster, service, name))


def revision_of_pods(cluster: ClusterCache, namespace: str, service: str, name: str) -> Mapping[str, Any]:
    """Return the data of the revision `name` from which the pods of a service were created; {} if the revision is not
    known. As for `revision`, anybody may have written the data.

    Pods occupy their nodes until they are gone. Until then, the service may have been deleted, or a new service of the same
    name may not have the revision. In these cases, a revision of this name that the operator wrote is used, whatever its
    owner is.
    """
    if found := revision(cluster, Ref(SERVICE, namespace, service), name):
        return found
    labelled = _named(cluster.children["ControllerRevision"].group((namespace, service)), name)
    return next((data for child, data in labelled if child.owned), {})


def _named(children: Iterable[Child], name: str) -> Iterator[tuple[Child, Mapping[str, Any]]]:
    """Yield each ControllerRevision in `children` whose label names the revision `name`, and its data."""
    for child in children:
        if child.labels.get(keys.REVISION) == name and child.content:
            yield child, child.content.get("data") or {}
