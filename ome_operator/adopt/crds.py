"""Replace OME's CRDs in place. The objects stay, and helm recognizes the CRDs as part of this chart's release."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.api import crds, schema
from ome_operator.api.kinds import KINDS, Kind
from ome_operator.core.observed.objects import Manifest

KEEP = "helm.sh/resource-policy"


class Release(NamedTuple):
    """A helm release."""

    name: str
    namespace: str

    @property
    def labels(self) -> dict[str, str]:
        """Labels that helm requires on an object before it adds the object to this release."""
        return {"app.kubernetes.io/managed-by": "Helm"}

    @property
    def annotations(self) -> dict[str, str]:
        """Annotations that helm requires, and an annotation that prevents an uninstall from deleting all objects of the
        kind.
        """
        names = {"meta.helm.sh/release-name": self.name, "meta.helm.sh/release-namespace": self.namespace}
        return {**names, KEEP: "keep"}


def release_of(live: Mapping[str, Any]) -> Release | None:
    """Return the helm release in an object's annotations; None if the object belongs to no release."""
    marks = live["metadata"].get("annotations") or {}
    name = marks.get("meta.helm.sh/release-name")
    return Release(name, marks.get("meta.helm.sh/release-namespace") or "") if name else None


def own_kind(name: str) -> Kind | None:
    """Return the kind of this operator whose CRD has the name `name`; None if the operator has no such kind."""
    return next((kind for kind in KINDS if kind.crd == name), None)


def replacement(live: Manifest, kind: Kind, release: Release) -> Manifest | None:
    """Return the CRD that must be stored with a PUT in place of the CRD `live`; None if `live` already has this content.

    A server-side apply is not suitable, because the API server merges schemas field by field. Every field of OME's schema
    that the new schema does not have (including defaults) would stay as long as OME's field manager owns it.
    """
    metadata = live["metadata"]
    labels = {**(metadata.get("labels") or {}), **release.labels}
    annotations = {**(metadata.get("annotations") or {}), **release.annotations}
    # The server defaults `conversion`; a conversion webhook without a running server would break every read.
    crd = crds.crd(kind)
    spec = {**crd["spec"], "conversion": {"strategy": "None"}}
    # With kubectl's copy of OME's CRD, the next `kubectl apply` would remove fields that the copy contains.
    annotations.pop("kubectl.kubernetes.io/last-applied-configuration", None)
    wanted = {**metadata, "labels": labels, "annotations": annotations}
    if wanted == metadata and spec == live["spec"]:
        return None
    return {**live, **crd, "metadata": wanted, "spec": spec}  # the items of a list do not contain their kind


def rejection_reason(live: Mapping[str, Any], kind: Kind) -> str:
    """Return the reason why the API server would reject the new CRD of `kind` in place of the existing CRD `live`; "" if it
    would accept the new CRD.
    """
    stored = [version for version in (live.get("status") or {}).get("storedVersions") or () if version != kind.version]
    if stored:
        former = ", ".join(stored)
        return f"objects are stored as {former}: migrate them to {kind.version}, then remove {former} from storedVersions"
    scope = "Namespaced" if kind.namespaced else "Cluster"
    if live["spec"]["scope"] != scope:
        return (
            f"its scope is {live['spec']['scope']} instead of {scope}: export the objects, delete the CRD, apply them again"
        )
    return ""


def dropped_fields(kind: Kind, body: Mapping[str, Any]) -> list[str]:
    """Return the paths of an object's fields that the new schema does not have. The next write of the object would drop
    these fields.
    """
    return list(_pruned(schema.structural(kind.spec), body.get("spec") or {}, "spec"))


def _pruned(node: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _pruned(node.get("items") or {schema.OPEN: True}, item, f"{path}[{number}]")
    elif isinstance(value, dict):
        known, extra = node.get("properties") or {}, node.get("additionalProperties")
        for name, below in value.items():
            if name in known:
                yield from _pruned(known[name], below, f"{path}.{name}")
            elif extra:
                yield from _pruned(extra, below, f"{path}.{name}")
            elif not node.get(schema.OPEN):
                yield f"{path}.{name}"


def is_omes(name: str) -> bool:
    """Return whether a CRD belongs to OME's group."""
    return name.endswith(f".{keys.GROUP}")
