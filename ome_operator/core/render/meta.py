"""Labels, selectors and metadata that all objects of the operator have in common."""

from collections.abc import Mapping
from typing import NamedTuple

from ome_operator import keys, names
from ome_operator.core.observed.objects import Manifest, Pod
from ome_operator.util.memoize import memoize_by_identity


class Owner(NamedTuple):
    """The InferenceService that owns a manifest."""

    name: str
    namespace: str
    uid: str


def labels(service: str, component: str = "", revision: str = "") -> dict[str, str]:
    """Return the labels of an object of a service. There is no label for an argument that is ""."""
    out = {keys.MANAGED_BY: keys.MANAGER, keys.SERVICE: service}
    if component:
        out[keys.COMPONENT] = component
    if revision:
        out[keys.REVISION] = revision
    return out


def leaders(service: str, component: str) -> dict[str, str]:
    """Return the selector of the pods of a component that serve HTTP, in all revisions: the leaders of engines, or the
    routers.
    """
    first = {} if component == keys.ROUTER else {keys.WORKER_INDEX: "0"}
    return {**labels(service, component), **first}


def address(owner: Owner, component: str, revision: str, group: int) -> str:
    """Return the DNS name of the leader pod of a group, within the cluster."""
    pod = names.leader_pod(names.object_prefix(owner.name, component, revision), group)
    return names.address(pod, owner.name, owner.namespace)


def manifest(owner: Owner, api_version: str, kind: str, name: str, labels: Mapping[str, str], body: Manifest) -> Manifest:
    """Return an object in the service's namespace whose controlling owner is the service. The objects of a service share the
    list of owner references.
    """
    metadata = {"name": name, "namespace": owner.namespace, "labels": dict(labels), "ownerReferences": _references(owner)}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}


@memoize_by_identity(1024)
def _references(owner: Owner) -> list[Manifest]:
    return [
        {
            "apiVersion": keys.API_VERSION,
            "kind": "InferenceService",
            "name": owner.name,
            "uid": owner.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def slice_mark(pod: Pod) -> str:
    """Return the text that identifies the revision of a service to which a pod belongs. The registry beside a router of this
    revision begins its summary with the same text.
    """
    return names.slice_mark(pod.namespace, requirement(labels(pod.service, revision=pod.revision)))


def requirement(selector: Mapping[str, str]) -> str:
    """Return a label selector as a string of the Kubernetes API: "key=value,key=value"."""
    return ",".join(f"{key}={value}" for key, value in selector.items())
