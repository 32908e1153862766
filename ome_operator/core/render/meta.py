"""Labels, selectors and metadata that every object of ours carries."""

from collections.abc import Mapping
from typing import NamedTuple

from ome_operator import keys, names
from ome_operator.core.observed.objects import Manifest


class Owner(NamedTuple):
    """The InferenceService that a manifest belongs to."""

    name: str
    namespace: str
    uid: str


def labels(service: str, component: str = "", revision: str = "") -> dict[str, str]:
    """Labels of an object of a service; empty parts are left out."""
    out = {keys.MANAGED_BY: keys.MANAGER, keys.SERVICE: service}
    if component:
        out[keys.COMPONENT] = component
    if revision:
        out[keys.REVISION] = revision
    return out


def leaders(service: str, component: str) -> dict[str, str]:
    """Selects the pods of a component that serve HTTP, in every slice."""
    first = {} if component == keys.ROUTER else {keys.WORKER_INDEX: "0"}
    return {**labels(service, component), **first}


def address(owner: Owner, component: str, revision: str, group: int) -> str:
    """DNS name of the leader of a group, within the cluster."""
    pod = names.leader_pod(names.stem(owner.name, component, revision), group)
    return f"{pod}.{names.headless(owner.name)}.{owner.namespace}"


def manifest(owner: Owner, api_version: str, kind: str, name: str, labels: Mapping[str, str], body: Manifest) -> Manifest:
    """An object in the service's namespace, owned by the service."""
    reference = {
        "apiVersion": keys.API_VERSION,
        "kind": "InferenceService",
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = {"name": name, "namespace": owner.namespace, "labels": dict(labels), "ownerReferences": [reference]}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}


def requirement(selector: Mapping[str, str]) -> str:
    """A label selector in the API's spelling."""
    return ",".join(f"{key}={value}" for key, value in selector.items())
