"""Translate the locations of a BenchmarkJob's data set and results to paths in its pod."""

from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import urlsplit

from ome_operator.api import Storage
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.problem import ProblemError
from ome_operator.core.reasons import COMPLETE, Reason
from ome_operator.core.weights.mount import claim

WORK = "/ome/work"
"""Directory that the containers of the pod share. It is deleted together with the pod."""
STORES = ("s3", "gs", "az", "oci")
_WEB = ("http", "https")


class PodPath(NamedTuple):
    """The location of a file or directory in the pod."""

    path: str
    """Path in the pod. Results for an object store are first written to this directory, and then uploaded."""
    remote: str = ""
    """URI from which a data set is downloaded, or to which results are uploaded; "" if the path is on a mounted volume."""
    volume: Manifest | None = None
    mount: Manifest | None = None


def dataset(storage: Storage | None, namespace: str) -> PodPath | None:
    """Return the location of the data set in the pod; None if the BenchmarkJob has no data set. Raises ProblemError for an
    unsupported location. `storage` is the field of the spec that names the data set; None if it is not set.
    """
    if storage is None:
        return None
    field, uri = "spec.dataset.storageUri", storage.storage_uri
    scheme = uri.partition("://")[0]
    if scheme in (*STORES, *_WEB):
        return PodPath(f"{WORK}/dataset/{_file(field, uri)}", uri)
    inside = _inside(field, uri)
    file = PurePosixPath(inside)
    if not file.name:
        raise _refused(f"{field} {uri} does not name a file: add the path of a file")
    if scheme == "local":
        return _mounted("dataset", uri, str(file.parent), file.name, namespace, read_only=True)
    return _mounted("dataset", uri, "", inside, namespace, read_only=True)


def output(storage: Storage, folder: str, namespace: str) -> PodPath:
    """Return the directory in the pod to which the results are written. Raises ProblemError for an unsupported location."""
    field, uri = "spec.outputLocation.storageUri", storage.storage_uri
    if PurePosixPath(folder).is_absolute() or ".." in PurePosixPath(folder).parts:
        raise _refused(
            f"spec.resultFolderName {folder} names a folder outside of the output location: write a name without slashes "
            "and dots"
        )
    scheme = uri.partition("://")[0]
    if scheme in STORES:
        return PodPath(f"{WORK}/output", f"{uri.rstrip('/')}/{folder}")
    inside = _inside(field, uri)
    if scheme == "local":
        return _mounted("output", uri, inside, folder, namespace, read_only=False)
    return _mounted("output", uri, "", f"{inside}/{folder}".strip("/"), namespace, read_only=False)


def _file(field: str, uri: str) -> str:
    """Return the name of the file that is downloaded from a URI. Raises ProblemError if the URI is invalid."""
    try:
        return PurePosixPath(urlsplit(uri).path).name or "data"
    except ValueError as error:
        raise _refused(f"{field} {uri} is not a URL: write one such as https://example.com/questions.jsonl") from error


def _inside(field: str, uri: str) -> str:
    """Return the path of a `pvc://` or `local://` URI within the volume claim, or within the file system of a node. Raises
    ProblemError if the URI contains `..`, or for another scheme.
    """
    if ".." in PurePosixPath(uri.partition("://")[2]).parts:
        raise _refused(f"{field} {uri} contains `..`: write a path without it")
    if (volume_claim := claim(uri)) is not None:
        return volume_claim[2]
    if not uri.startswith("local:///"):
        raise _refused(
            f"{field} {uri} is not supported here: write pvc://claim/path, local:///path, s3://, gs://, az:// or oci://"
        )
    return uri.removeprefix("local://")


def _mounted(name: str, uri: str, directory: str, inside: str, namespace: str, *, read_only: bool) -> PodPath:
    """Return a path on a volume claim, or below a directory of the node. Raises ProblemError for a claim in another
    namespace.
    """
    directory_in_pod = f"/ome/{name}"
    mount: Manifest = {"name": name, "mountPath": directory_in_pod, **({"readOnly": True} if read_only else {})}
    volume_claim = claim(uri)
    if volume_claim is None:
        volume = {"name": name, "hostPath": {"path": directory, "type": "Directory"}}
        return PodPath(f"{directory_in_pod}/{inside}", "", volume, mount)
    owner, claimed, _ = volume_claim
    if owner and owner != namespace:
        raise _refused(f"{uri} names a claim of namespace {owner}, which pods of namespace {namespace} cannot mount")
    return PodPath(
        f"{directory_in_pod}/{inside}", "", {"name": name, "persistentVolumeClaim": {"claimName": claimed}}, mount
    )


def _refused(sentence: str) -> ProblemError:
    return ProblemError(COMPLETE, Reason.PLACE_NOT_SERVED, sentence)
