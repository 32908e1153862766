"""Builds the operator's view of a cluster from objects in files or lists, so that commands use the same functions as the
operator.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.api import Invalid
from ome_operator.api.well_known import load_packaged
from ome_operator.cache.cluster_cache import KINDS, ClusterCache
from ome_operator.cache.resources import SHORT
from ome_operator.core.observed import from_api
from ome_operator.core.observed.objects import NO_POLICY, Deps, Manifest, Ref
from ome_operator.core.sglang import convert
from ome_operator.kube.resources import kind_of_resource, resource_name

KNOWN = frozenset((*KINDS, *SHORT))
"""Kinds that the operator reads, keyed by their names in RESOURCES."""


def ref_of_body(body: Mapping[str, Any]) -> Ref:
    """Return the reference of the object with this body."""
    metadata = body.get("metadata") or {}
    kind = resource_name(body.get("apiVersion") or "", body.get("kind") or "")
    return Ref(kind, metadata.get("namespace") or "", metadata.get("name") or "")


def full_name(which: Ref) -> str:
    """Return kind and name of an object, with the namespace in front of the name, as messages about files state them."""
    place = f"{which.namespace}/" if which.namespace else ""
    return f"{kind_of_resource(which.kind)} {place}{which.name}"


def build_cluster(
    bodies: Iterable[Mapping[str, Any]],
    registry_image: str = "",
    *,
    model_agent: bool = False,
    agent_roots: tuple[str, ...] = (),
    preflight: str = "Off",
    compile_caches: bool = False,
) -> ClusterCache:
    """Return the view of a cluster with these objects, as if they had been watched. If two bodies describe the same object,
    the later body is used.

    `registry_image`, `model_agent`, `agent_roots`, `preflight` and `compile_caches` are the operator's settings of the same
    names. Objects that the operator derives from the kinds of sglang.ai are added unless they are among the bodies.
    """
    found = {which: body for body in bodies if (which := ref_of_body(body)).kind in KNOWN}
    settled = Deps(
        policy=replace(
            NO_POLICY,
            registry_image=registry_image,
            router_keys=True,
            model_agent=model_agent,
            agent_roots=agent_roots,
            preflight=preflight,
            compile_caches=compile_caches,
        ),
        well_known=load_packaged(),
    )
    cluster = ClusterCache(settled)
    for which, body in found.items():
        cluster.store_observed(which.kind, _stored(which, body))
    for kind in SHORT:  # models come first, because services are chosen for them
        for manifest in (item.manifest for item in derived_objects(cluster, kind)):
            if manifest is not None:
                _make(cluster, manifest, found.get(ref_of_body(manifest)))
    return cluster


def _make(cluster: ClusterCache, manifest: Manifest, known: Mapping[str, Any] | None) -> None:
    """Add the object that is derived from an object of sglang.ai. It replaces an object that was derived earlier, but never
    an object that a user wrote. `known` is the object of the same name among the given objects; None if there is none.
    """
    which = ref_of_body(manifest)
    if known is None:
        cluster.store_observed(which.kind, _stored(which, manifest))
        return
    source = ((known.get("metadata") or {}).get("annotations") or {}).get(keys.SOURCE_DIGEST)
    if source not in (None, manifest["metadata"]["annotations"][keys.SOURCE_DIGEST]):
        cluster.store_observed(which.kind, merge_edit(manifest, _stored(which, known)))


def merge_edit(edited: Mapping[str, Any], live: Mapping[str, Any]) -> Manifest:
    """Return the object that the cluster stores after a user has applied `edited` to the live object. Fields that the
    server manages stay, and labels and annotations are merged.
    """
    new, old = edited["metadata"], live["metadata"]
    both = {part: {**(old.get(part) or {}), **(new.get(part) or {})} for part in ("labels", "annotations")}
    kept = {"uid": old.get("uid"), "resourceVersion": str(from_api.version(live) + 1)}
    metadata = {**old, **new, **both, **kept, "generation": (old.get("generation") or 0) + 1}
    return {**live, **edited, "metadata": metadata, "status": live.get("status") or {}}


class DerivedObject(NamedTuple):
    """The object that the operator derives from an object of sglang.ai."""

    of: Ref
    manifest: Manifest | None
    why: str
    """Why no manifest can be derived yet; "" if `manifest` is set."""


def derived_objects(cluster: ClusterCache, kind: str) -> list[DerivedObject]:
    """Return the object that the operator derives from each object of a kind of sglang.ai."""
    found = []
    for item in cluster.resources[kind]:
        if isinstance(item.parsed, Invalid):
            found.append(DerivedObject(item.ref, None, item.parsed.why))
        else:
            manifest, (_, why) = convert.desired_object(item.parsed, cluster.deps())
            found.append(DerivedObject(item.ref, manifest, why))
    return found


def _stored(which: Ref, body: Mapping[str, Any]) -> Manifest:
    """Return a body with the fields that an API server would add. The UID is computed from the object's name, so that it is
    stable.
    """
    metadata = dict(body.get("metadata") or {})
    metadata.setdefault("uid", str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join(which))))
    metadata.setdefault("resourceVersion", "1")
    return {**body, "metadata": metadata}
