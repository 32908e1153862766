"""OME's CRDs become ours in place: objects stay, and helm finds them to be of our chart's release."""

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
        """What helm asks of an object before it takes it into this release."""
        return {"app.kubernetes.io/managed-by": "Helm"}

    @property
    def annotations(self) -> dict[str, str]:
        """The same, and that an uninstall must not delete every object of the kind."""
        names = {"meta.helm.sh/release-name": self.name, "meta.helm.sh/release-namespace": self.namespace}
        return {**names, KEEP: "keep"}


def release_of(live: Mapping[str, Any]) -> Release | None:
    """The release that an object says it belongs to."""
    marks = live["metadata"].get("annotations") or {}
    name = marks.get("meta.helm.sh/release-name")
    return Release(name, marks.get("meta.helm.sh/release-namespace") or "") if name else None


def ours(name: str) -> Kind | None:
    """The kind of ours whose CRD has this name."""
    return next((kind for kind in KINDS if kind.crd == name), None)


def replaced(live: Manifest, kind: Kind, release: Release) -> Manifest | None:
    """The CRD as it should be stored, for a PUT; None when it is so already.

    Not a server-side apply: schemas merge field by field, so everything that OME's schema has and ours has not (its
    defaults among it) would stay for as long as OME's field manager owns it.
    """
    metadata = live["metadata"]
    labels = {**(metadata.get("labels") or {}), **release.labels}
    annotations = {**(metadata.get("annotations") or {}), **release.annotations}
    # The server fills `conversion` in; a conversion webhook that nobody answers would break every read.
    crd = crds.crd(kind)
    spec = {**crd["spec"], "conversion": {"strategy": "None"}}
    # kubectl's copy of OME's CRD would make the next `kubectl apply` think that its fields are ours to remove.
    annotations.pop("kubectl.kubernetes.io/last-applied-configuration", None)
    wanted = {**metadata, "labels": labels, "annotations": annotations}
    if wanted == metadata and spec == live["spec"]:
        return None
    return {**live, **crd, "metadata": wanted, "spec": spec}  # an item of a list has no kind


def obstacle(live: Mapping[str, Any], kind: Kind) -> str:
    """Why the API server would refuse our CRD in the place of this one; "" when it would not."""
    stored = [one for one in (live.get("status") or {}).get("storedVersions") or () if one != kind.version]
    if stored:
        return f"objects are stored as {', '.join(stored)}: migrate them to {kind.version} and take it out of storedVersions"
    scope = "Namespaced" if kind.namespaced else "Cluster"
    if live["spec"]["scope"] != scope:
        return f"its scope is {live['spec']['scope']}, ours {scope}: export the objects, delete the CRD, apply them again"
    return ""


def lost(kind: Kind, body: Mapping[str, Any]) -> list[str]:
    """Paths of an object's fields that our schema does not have: the next write of the object would drop them."""
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


def of_ome(name: str) -> bool:
    """Whether a CRD is of OME's group."""
    return name.endswith(f".{keys.GROUP}")
