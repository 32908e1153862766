"""Determine where a model's weights are on a node, and how a pod mounts them.

The layout of directories on nodes (one directory per revision, decisions 7) is defined only here.
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
"""URI schemes whose files agents download."""
LOCAL = "local://"
"""Prefix of the URIs of files that an administrator puts on the nodes."""
FILES_FROM = "filesFrom"
"""Key in `spec.storage.parameters`: a repository whose files, without its weights, are added to the files of the URI."""
SOURCE = "source"
"""Key in the storage identity of downloaded weights: the parameters on which the contents depend."""
DECIDING = ("account", "endpoint", "region", "verify")
"""Keys in `spec.storage.parameters` on which the contents of a URI depend. `filesFrom` is not included, because the
result of `files_uri` contains it."""
NAMESPACES = ".namespaces"
"""Directory below a root that contains the weights of BaseModels, in one directory per namespace. Agents download them."""
_BESIDE = re.compile(r"\+(?=[a-z0-9]+://)")
DEFAULT_ROOT = "/mnt/models"
VOLUME = "model"


AnyModel = Model | FineTunedWeight
"""The kinds of objects whose weights are stored on nodes."""


class Weights(NamedTuple):
    """Storage identity of a model: the part of its storage that belongs to a revision (decisions 2)."""

    kind: str
    namespace: str
    name: str
    uri: str
    """URI of the files; `URI+URI` if files of another repository are added."""
    path: str
    source: str = ""
    """Parameters on which the contents depend, as `a=1&b=2`; "" if there are none."""

    def identity(self, agents: bool) -> dict[str, str]:
        """Return the identity as a revision stores it. It includes the source only if agents download the weights, because
        only agents use the source.
        """
        stored: dict[str, str] = self._asdict()
        if not (agents and agents_can_download(self.uri)):
            del stored[SOURCE]
        return stored

    @property
    def digest(self) -> str:
        """Name of the directory that agents create for these weights."""
        return names.weights_digest(self._asdict())


class Mount(NamedTuple):
    """The volume, mount and affinity with which a pod uses the weights."""

    volume: Manifest
    mount: Manifest
    affinity: Manifest | None
    """A required node-selector expression; None if the volume itself determines on which nodes the pod can run."""
    preferred: Manifest | None = None
    """A preferred node-selector expression, which names the label of the model if `affinity` requires the label of a
    revision; None otherwise."""


def weights(model: AnyModel) -> Weights:
    """Return the storage identity of a model. `spec.storage.path` defaults to the path in a local:// URI, and for other
    URIs to `/mnt/models/<name>`.
    """
    storage = model.spec.storage
    path = storage.path or local_path(storage.storage_uri) or f"{DEFAULT_ROOT}/{model.name}"
    given = storage.parameters or {}
    source = urlencode([(name, given[name]) for name in DECIDING if given.get(name)])
    return Weights(model.kind, model.namespace, model.name, files_uri(storage), path.rstrip("/") or "/", source)


def local_path(uri: str) -> str:
    """Return the absolute path in a URI of the form `local:///path`; "" for other URIs."""
    inside = uri.removeprefix("local://")
    return inside if inside != uri and inside.startswith("/") else ""


def files_uri(storage: Storage) -> str:
    """Return the URI of all files of a model. The same weights with other additional files are a different set of files,
    which has its own directory.
    """
    other = (storage.parameters or {}).get(FILES_FROM)
    return f"{storage.storage_uri}+{other}" if other and agents_can_download(storage.storage_uri) else storage.storage_uri


def split_weights_uri(uri: str) -> tuple[str, str]:
    """Return the URI of the weights, and the URI of the additional files ("" if there are none)."""
    first, *other = _BESIDE.split(uri, maxsplit=1)
    return first, other[0] if other else ""


def node_label(kind: str, namespace: str, name: str) -> str:
    """Return the key of the label that has the value `Ready` on nodes with the model."""
    return names.model_label(kind, namespace, name)


def agents_can_download(uri: str) -> bool:
    """Return whether agents can download the files of a URI."""
    return uri.partition("://")[0] in FETCHED


def unsupported_scheme(uri: str) -> str:
    """Return a sentence about a URI whose scheme is not supported; "" if the scheme is supported."""
    scheme = uri.partition("://")[0]
    if scheme not in ("vendor", "github"):
        return ""
    return (
        f"spec.storage.storageUri {uri} cannot be downloaded, because {scheme}:// is not supported: put the files on "
        "the nodes and write local:///path, or label the nodes that hold them"
    )


def claim(uri: str) -> tuple[str, str, str] | None:
    """Return (namespace, claim, path in the volume) of `pvc://[namespace:]claim[/path]`; the namespace is "" if the URI
    names none. Return None for a URI with another scheme.
    """
    if not uri.startswith("pvc://"):
        return None
    place, _, inside = uri.removeprefix("pvc://").partition("/")
    namespace, _, name = place.rpartition(":")
    return namespace, name, inside.strip("/")


def required_label(identity: Mapping[str, str], directory: str) -> str:
    """Return the key of the label that must be `Ready` on a node for pods that mount the weights with this identity.
    `directory` has the same meaning as in `mount`.
    """
    ref = identity["kind"], identity["namespace"], identity["name"]
    return names.revision_label(*ref, digest_of(directory)) if directory else node_label(*ref)


def digest_of(directory: str) -> str:
    """Return the digest in the name of a revision's directory."""
    return PurePosixPath(directory).name


def directory(identity: Mapping[str, str], agents: bool, roots: tuple[str, ...] = ()) -> str:
    """Return the directory of a model revision, or "" if the weights are stored at the model's path itself (decisions 7).
    `agents` states whether agents download weights, and `roots` are the directories below which they store weights.

    For cluster-wide models the result is a digest, the name of a directory below `keys.WEIGHTS` next to the model's path.
    For namespaced models it is an absolute path below the namespace's directory in a root. Stored revisions keep this path
    even if the roots change later.
    """
    if not (agents and agents_can_download(identity["uri"])):
        return ""
    digest = names.weights_digest(identity)
    return join(weights_parent(identity, roots), digest) if identity["namespace"] else digest


def weights_parent(identity: Mapping[str, str], roots: tuple[str, ...]) -> str:
    """Return the parent directory of the directories that agents create for weights with this identity."""
    beside = dirname(identity["path"])
    if not (namespace := identity["namespace"]):
        return join(beside, keys.WEIGHTS)
    return join(root_of(identity["path"], roots) or beside, NAMESPACES, namespace, keys.WEIGHTS)


def place_of(directory: str) -> str:
    """Return the namespace to which a directory of weights belongs according to its path; "" for the directory of a
    cluster-wide model.
    """
    _, separator, rest = f"{directory}/".partition(f"/{NAMESPACES}/")
    return rest.partition("/")[0] if separator else ""


@lru_cache(4096)  # agents call this function in every pass, several times for each model
def root_of(path: str, roots: tuple[str, ...]) -> str:
    """Return the innermost of the directories `roots` that contains `path`; "" if none contains it."""
    above = set(map(str, PurePosixPath(path).parents))
    return max((root for root in roots if root in above), key=len, default="")


def directories(data: Mapping[str, Any]) -> Sequence[str]:
    """Return the `directory` of each identity of a stored revision. The oldest revisions store only the directory of the
    model.
    """
    return data.get("directories") or [data.get("directory") or ""]


def with_directories(
    identities: Sequence[Mapping[str, str]], directories: Sequence[str]
) -> list[tuple[Mapping[str, str], str]]:
    """Return each identity together with the entry of `directories` at the same position ("" if `directories` is
    shorter).
    """
    return list(zip(identities, (*directories, *("" for _ in identities)), strict=False))


def mount(identity: Mapping[str, str], namespace: str, volume_name: str = VOLUME, directory: str = "") -> Mount:
    """Return the volume, mount and affinity with which the pods of a service in `namespace` mount weights. `identity` is the
    stored identity of the weights.

    `directory` is the directory of the revision of the model, if an agent created one. Raises ProblemError for a volume
    claim in another namespace.
    """
    path, uri = identity["path"], identity["uri"]
    entry: dict[str, Any] = {"name": volume_name, "mountPath": path, "readOnly": True}
    if (volume_claim := claim(uri)) is None:
        plain, required = (_ready(required_label(identity, revision_directory)) for revision_directory in ("", directory))
        host_path = (
            join(dirname(path), keys.WEIGHTS, directory) if directory else path
        )  # joining an absolute directory returns that directory
        volume = {"name": volume_name, "hostPath": {"path": host_path, "type": "Directory"}}
        return Mount(volume, entry, required, plain if directory else None)
    owner, name, inside = volume_claim
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


def host_directories(pod: Mapping[str, Any]) -> set[str]:
    """Return the host directories that a pod spec mounts, including the subdirectories that its containers mount."""
    named = {entry.get("name"): (entry.get("hostPath") or {}).get("path") for entry in pod.get("volumes") or ()}
    volumes = {name: path for name, path in named.items() if path}
    directories = set(volumes.values())
    for box in (*(pod.get("initContainers") or ()), *(pod.get("containers") or ()), *(pod.get("ephemeralContainers") or ())):
        for entry in box.get("volumeMounts") or ():
            if entry.get("name") in volumes and entry.get("subPath"):
                directories.add(join(volumes[entry["name"]], entry["subPath"]))
    return {normpath(entry) for entry in directories}


def any_inside(mounted: Iterable[str], places: Iterable[str]) -> bool:
    """Return whether any directory in `mounted` is one of the directories `places` or is inside one of them.

    A mount of a parent directory is ignored: agents mount the whole disk for weights, and other pods mount the whole
    node.
    """
    directories = [normpath(path) for path in places]
    return any(path == place or path.startswith(f"{place}/") for path in mounted for place in directories)
