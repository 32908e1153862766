"""Where a model's weights are on a node and how a pod sees them.

Everything that the model plane will change about this (a directory per revision, decisions 7) changes here only.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from posixpath import dirname, join, normpath
from typing import Any, NamedTuple
from urllib.parse import urlencode

from ome_operator import keys, names
from ome_operator.api import FineTunedWeight, Model, Storage
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.problem import ProblemError
from ome_operator.core.reasons import MODEL_READY, Reason

FETCHED = frozenset({"hf", "s3", "gs", "az", "oci"})
"""Schemes whose files agents fetch."""
FILES_FROM = "filesFrom"
"""Of `spec.storage.parameters`: the repository whose files, without its weights, lie beside those of the URI."""
SOURCE = "source"
"""In the storage identity of what agents fetch: the parameters that decide the bytes."""
DECIDING = ("account", "endpoint", "region", "verify")
"""Of `spec.storage.parameters`: what another answer of the same URI may come from. `filesFrom` is part of the URI of all
files.
"""
NAMESPACES = ".namespaces"
"""Below a root: the weights that agents fetch for BaseModels, a folder for each namespace."""
_BESIDE = re.compile(r"\+(?=[a-z0-9]+://)")
DEFAULT_ROOT = "/mnt/models"
VOLUME = "model"


class Weights(NamedTuple):
    """Storage identity of a model: the part of it that belongs to a revision (decisions 2)."""

    kind: str
    namespace: str
    name: str
    uri: str
    """Of the files; `URI+URI` where those of another repository lie beside them."""
    path: str
    source: str = ""
    """Parameters that decide the bytes, as `a=1&b=2`."""

    def identity(self, agents: bool) -> dict[str, str]:
        """As a revision stores it. Without agents nobody asks a source, so it is no part of it."""
        found: dict[str, str] = self._asdict()
        if not (agents and managed(self.uri)):
            del found[SOURCE]
        return found

    @property
    def digest(self) -> str:
        """Name of the directory that agents make for these weights."""
        return names.weights_digest(self._asdict())


class Mount(NamedTuple):
    """What a pod needs to see the weights."""

    volume: Manifest
    mount: Manifest
    affinity: Manifest | None
    """A required node-selector expression, or None when the volume itself decides where the pod can run."""
    preferred: Manifest | None = None
    """One that the scheduler shall rather meet: the model's plain label, where a revision's own is required."""


def weights(model: Model | FineTunedWeight) -> Weights:
    """Storage identity of a model; `spec.storage.path` defaults to `/mnt/models/<name>`."""
    storage = model.spec.storage
    path = storage.path or f"{DEFAULT_ROOT}/{model.name}"
    given = storage.parameters or {}
    source = urlencode([(name, given[name]) for name in DECIDING if given.get(name)])
    return Weights(model.kind, model.namespace, model.name, files_uri(storage), path.rstrip("/") or "/", source)


def files_uri(storage: Storage) -> str:
    """The URI of all files: other files beside the same weights are another set of files, in a directory of its own."""
    other = (storage.parameters or {}).get(FILES_FROM)
    return f"{storage.storage_uri}+{other}" if other and managed(storage.storage_uri) else storage.storage_uri


def both(uri: str) -> tuple[str, str]:
    """The URI of the weights, and that of the files beside them, "" where there are none."""
    first, *other = _BESIDE.split(uri, maxsplit=1)
    return first, other[0] if other else ""


def node_label(kind: str, namespace: str, name: str) -> str:
    """Label key that a node carries as `Ready` when it holds the model."""
    return names.model_label(kind, namespace, name)


def managed(uri: str) -> bool:
    """Whether an agent can fetch what a URI names."""
    return uri.partition("://")[0] in FETCHED


def unserved(uri: str) -> str:
    """A sentence for URIs that nobody can fetch, "" for all others."""
    scheme = uri.partition("://")[0]
    if scheme not in ("vendor", "github"):
        return ""
    return (
        f"spec.storage.storageUri {uri} cannot be fetched: {scheme}:// is not served; put the files on the nodes and write "
        "local:///path, or label the nodes that hold them"
    )


def claim(uri: str) -> tuple[str, str, str] | None:
    """(namespace or "", claim, path inside) of `pvc://[namespace:]claim[/path]`, None for every other scheme."""
    if not uri.startswith("pvc://"):
        return None
    place, _, inside = uri.removeprefix("pvc://").partition("/")
    namespace, _, name = place.rpartition(":")
    return namespace, name, inside.strip("/")


def required_label(identity: Mapping[str, str], directory: str) -> str:
    """Label key that a node must carry as `Ready` for pods of this identity; `directory` as in `mount`."""
    ref = identity["kind"], identity["namespace"], identity["name"]
    return names.revision_label(*ref, digest_of(directory)) if directory else node_label(*ref)


def digest_of(directory: str) -> str:
    """The digest that a `directory` is called by, wherever it lies."""
    return PurePosixPath(directory).name


def directory(identity: Mapping[str, str], agents: bool, roots: tuple[str, ...] = ()) -> str:
    """The model revision's own directory, "" where the weights just lie at the path (decisions 7).

    A digest lies beside the path of the model. What is fetched for a namespace lies below the namespace's part of a root,
    which is said as an absolute path: stored revisions keep it, whatever the roots are later.
    """
    if not (agents and managed(identity["uri"])):
        return ""
    found = names.weights_digest(identity)
    return join(home(identity, roots), found) if identity["namespace"] else found


def home(identity: Mapping[str, str], roots: tuple[str, ...]) -> str:
    """Where agents keep the directories of weights like these."""
    beside = dirname(identity["path"])
    if not (namespace := identity["namespace"]):
        return join(beside, keys.WEIGHTS)
    return join(root_of(identity["path"], roots) or beside, NAMESPACES, namespace, keys.WEIGHTS)


def place_of(directory: str) -> str:
    """The namespace whose directory this is by where it lies, "" for one of the whole cluster."""
    _, inside, rest = f"{directory}/".partition(f"/{NAMESPACES}/")
    return rest.partition("/")[0] if inside else ""


@lru_cache(4096)  # agents ask in every pass, several times for each model
def root_of(path: str, roots: tuple[str, ...]) -> str:
    """The root that a path lies below, "" for none; of roots inside each other the innermost."""
    above = set(map(str, PurePosixPath(path).parents))
    return max((root for root in roots if root in above), key=len, default="")


def directories(data: Mapping[str, Any]) -> Sequence[str]:
    """The `directory` of each identity of a stored revision; the first revisions stored that of the model alone."""
    return data.get("directories") or [data.get("directory") or ""]


def placed(identities: Sequence[Mapping[str, str]], directories: Sequence[str]) -> list[tuple[Mapping[str, str], str]]:
    """Every identity with its `directory`, "" where none is said."""
    return list(zip(identities, (*directories, *("" for _ in identities)), strict=False))


def mount(identity: Mapping[str, str], namespace: str, volume_name: str = VOLUME, directory: str = "") -> Mount:
    """Volume, mount and affinity for the stored identity of a model, for a service in `namespace`.

    `directory` names the revision's own directory where an agent made it.
    """
    path, uri = identity["path"], identity["uri"]
    entry: dict[str, Any] = {"name": volume_name, "mountPath": path, "readOnly": True}
    if (found := claim(uri)) is None:
        plain, required = (_ready(required_label(identity, one)) for one in ("", directory))
        place = join(dirname(path), keys.WEIGHTS, directory) if directory else path  # an absolute directory stays what it is
        volume = {"name": volume_name, "hostPath": {"path": place, "type": "Directory"}}
        return Mount(volume, entry, required, plain if directory else None)
    owner, name, inside = found
    if owner and owner != namespace:
        raise ProblemError(
            MODEL_READY,
            Reason.CLAIM_IN_OTHER_NAMESPACE,
            f"spec.storage.storageUri {uri} names a claim of namespace {owner}, which pods of namespace {namespace} cannot "
            f"mount: create the claim in {namespace} and use a BaseModel there",
        )
    claimed = {"name": volume_name, "persistentVolumeClaim": {"claimName": name, "readOnly": True}}
    return Mount(claimed, {**entry, "subPath": inside} if inside else entry, None)


def _ready(label: str) -> Manifest:
    return {"key": label, "operator": "In", "values": [keys.MODEL_READY]}


def hosts(pod: Mapping[str, Any]) -> set[str]:
    """Directories of the node that a pod spec mounts, and the parts of them that its containers see."""
    named = {one.get("name"): (one.get("hostPath") or {}).get("path") for one in pod.get("volumes") or ()}
    volumes = {name: path for name, path in named.items() if path}
    found = set(volumes.values())
    for box in (*(pod.get("initContainers") or ()), *(pod.get("containers") or ()), *(pod.get("ephemeralContainers") or ())):
        for one in box.get("volumeMounts") or ():
            if one.get("name") in volumes and one.get("subPath"):
                found.add(join(volumes[one["name"]], one["subPath"]))
    return {normpath(one) for one in found}


def reaches(mounted: Iterable[str], places: Iterable[str]) -> bool:
    """Whether something that is mounted is one of these places or lies in it.

    What mounts a directory above refers to nothing: agents mount the whole disk for weights, others the whole node.
    """
    wanted = [normpath(one) for one in places]
    return any(one == place or one.startswith(f"{place}/") for one in mounted for place in wanted)
