"""Where a BenchmarkJob's data set comes from and where its results go, as paths in its pod."""

from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import urlsplit

from ome_operator.api import Storage
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.problem import ProblemError
from ome_operator.core.reasons import COMPLETE, Reason
from ome_operator.core.weights.mount import claim

WORK = "/ome/work"
"""Shared by the containers of the pod, gone with it."""
STORES = ("s3", "gs", "az", "oci")
_WEB = ("http", "https")


class PodPath(NamedTuple):
    """A file or folder as the pod sees it."""

    path: str
    """In the pod; of results in an object store, the folder in which they are made."""
    remote: str = ""
    """The URI that has to be fetched from, or sent to; "" for what is mounted."""
    volume: Manifest | None = None
    mount: Manifest | None = None


def dataset(storage: Storage | None, namespace: str) -> PodPath | None:
    """The file of the data set. Raises ProblemError."""
    if storage is None:
        return None
    field, uri = "spec.dataset.storageUri", storage.storage_uri
    scheme = uri.partition("://")[0]
    if scheme in (*STORES, *_WEB):
        return PodPath(f"{WORK}/dataset/{_file(field, uri)}", uri)
    inside = _inside(field, uri)
    file = PurePosixPath(inside)
    if not file.name:
        raise _refused(f"{field} {uri} names no file")
    if scheme == "local":
        return _mounted("dataset", uri, str(file.parent), file.name, namespace, read_only=True)
    return _mounted("dataset", uri, "", inside, namespace, read_only=True)


def output(storage: Storage, folder: str, namespace: str) -> PodPath:
    """The folder of the results. Raises ProblemError."""
    field, uri = "spec.outputLocation.storageUri", storage.storage_uri
    if PurePosixPath(folder).is_absolute() or ".." in PurePosixPath(folder).parts:
        raise _refused(f"spec.resultFolderName {folder} leads out of the output location: write a name")
    scheme = uri.partition("://")[0]
    if scheme in STORES:
        return PodPath(f"{WORK}/output", f"{uri.rstrip('/')}/{folder}")
    inside = _inside(field, uri)
    if scheme == "local":
        return _mounted("output", uri, inside, folder, namespace, read_only=False)
    return _mounted("output", uri, "", f"{inside}/{folder}".strip("/"), namespace, read_only=False)


def _file(field: str, uri: str) -> str:
    """What to call a file that is fetched."""
    try:
        return PurePosixPath(urlsplit(uri).path).name or "data"
    except ValueError as error:
        raise _refused(f"{field} {uri} is no URL: write one such as https://example.com/questions.jsonl") from error


def _inside(field: str, uri: str) -> str:
    """The path within a claim or on a node. Raises ProblemError for what leads out of it."""
    if ".." in PurePosixPath(uri.partition("://")[2]).parts:
        raise _refused(f"{field} {uri} leads out of its place by `..`: write a path without it")
    if (found := claim(uri)) is not None:
        return found[2]
    if not uri.startswith("local:///"):
        raise _refused(
            f"{field} {uri} is not served here: write pvc://claim/path, local:///path, s3://, gs://, az:// or oci://"
        )
    return uri.removeprefix("local://")


def _mounted(name: str, uri: str, directory: str, inside: str, namespace: str, *, read_only: bool) -> PodPath:
    """What lies on a claim, or below a directory of the node."""
    at = f"/ome/{name}"
    mount: Manifest = {"name": name, "mountPath": at, **({"readOnly": True} if read_only else {})}
    found = claim(uri)
    if found is None:
        volume = {"name": name, "hostPath": {"path": directory, "type": "Directory"}}
        return PodPath(f"{at}/{inside}", "", volume, mount)
    owner, claimed, _ = found
    if owner and owner != namespace:
        raise _refused(f"{uri} names a claim of namespace {owner}, which pods of namespace {namespace} cannot mount")
    return PodPath(f"{at}/{inside}", "", {"name": name, "persistentVolumeClaim": {"claimName": claimed}}, mount)


def _refused(sentence: str) -> ProblemError:
    return ProblemError(COMPLETE, Reason.PLACE_NOT_SERVED, sentence)
