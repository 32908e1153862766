"""Reads the YAML files and folders that a user names on the command line; `-` is standard input."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from ome_operator.api.invalid import shown
from ome_operator.cli.live.cluster_from_manifests import KNOWN
from ome_operator.core.observed.objects import Manifest
from ome_operator.errors import Unanswered
from ome_operator.kube.resources import RESOURCES, called
from ome_operator.util.checkout import shipped
from ome_operator.util.json_limits import deeper, larger
from ome_operator.util.kubeyaml import LEVELS, VALUES, documents

STDIN = Path("-")
SERVICES = ("InferenceService", "Serving")
"""Kinds of services, which refer to objects of other kinds (models, runtimes)."""
_SERVERS: Mapping[str, type] = {"uid": str, "generation": int, "deletionTimestamp": str}
"""Metadata fields that the API server sets and that the operator reads, each with its type. Owner references and managed
fields are left out, because they have no meaning without a cluster."""


def catalog_paths(paths: Iterable[Path] | None) -> list[Path]:
    """Return the folders with models and runtimes. If a path below `config` does not exist, it is replaced by the same
    path in the `config` folder that is shipped with this program.
    """
    return [
        path if path.exists() or path.parts[:1] != ("config",) else shipped("config").joinpath(*path.parts[1:])
        for path in paths or ()
    ]


def read_manifests(paths: Iterable[Path], namespace: str) -> list[Manifest]:
    """Return the objects in these files and folders whose kinds the operator reads, and skip all others. `namespace` is the
    namespace of objects that name none. Raises Unanswered for a file that cannot be read or parsed.
    """
    return read_manifests_and_namespaces(paths, namespace)[0]


def read_referenced(paths: Iterable[Path], given: Iterable[Path], namespace: str) -> list[Manifest]:
    """Return the objects in `paths` to which services refer. Services are left out, and so are the files in `given`,
    which the caller reads separately.
    """
    known = {file.resolve() for file in files_in(given)}
    found = read_manifests((file for file in files_in(paths) if file.resolve() not in known), namespace)
    return [body for body in found if body["kind"] not in SERVICES]


def read_manifests_and_namespaces(paths: Iterable[Path], namespace: str) -> tuple[list[Manifest], frozenset[str]]:
    """Return the objects whose kinds the operator reads, and the names of the namespaces that these files create. Raises
    Unanswered for a file that cannot be read or parsed.
    """
    found = [document for path in paths for document in _documents(path)]
    objects = [entry for where, body in found for entry in _objects(where, body, namespace)]
    return objects, frozenset(name for _, body in found for name in _namespaces(body))


def _namespaces(body: Any) -> Iterator[str]:
    if not isinstance(body, Mapping):
        return
    if isinstance(body.get("items"), list):
        yield from (name for item in body["items"] for name in _namespaces(item))
    metadata = body.get("metadata")
    if (body.get("apiVersion"), body.get("kind")) == ("v1", "Namespace") and isinstance(metadata, Mapping):
        yield str(metadata.get("name"))


def files_in(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the files in `paths`, and the YAML and JSON files in the folders in `paths`."""
    for path in paths:
        yield from sorted([*path.rglob("*.yaml"), *path.rglob("*.yml"), *path.rglob("*.json")]) if path.is_dir() else [path]


def _documents(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the file name and the content of each YAML document in a file, or in the files of a folder."""
    for entry in files_in([path]):
        where = "standard input" if entry == STDIN else str(entry)
        try:
            text = sys.stdin.read() if entry == STDIN else entry.read_text()
            yield from ((where, document) for document in documents(text))
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise Unanswered(f"{where} cannot be read: {error}") from error


def _objects(where: str, body: Any, namespace: str) -> Iterator[Manifest]:
    if not isinstance(body, Mapping):
        return
    if isinstance(body.get("items"), list) and str(body.get("kind", "")).endswith("List"):
        for item in body["items"]:
            yield from _objects(where, item, namespace)
        return
    kind = called(str(body.get("apiVersion", "")), str(body.get("kind", "")))
    if kind not in KNOWN or body.get("apiVersion") != RESOURCES[kind].api_version:
        return
    if said := _too_much(body) or _wrong_metadata(body) or _wrong_key(body, ""):
        raise Unanswered(f"{where}: {said}.")
    # Errors in other fields are reported by the parser of the kind. A `status` that is not a map cannot come from an API
    # server.
    status: Manifest = {} if isinstance(body.get("status", {}), Mapping) else {"status": {}}
    yield {**body, **status, "metadata": _metadata(body["metadata"], namespace if RESOURCES[kind].namespaced else None)}


def _metadata(written: Mapping[str, Any], namespace: str | None) -> Manifest:
    """Return the metadata that the operator reads. `namespace` is the default namespace; it is None for a cluster-scoped
    kind.
    """
    own = {name: written[name] for name in ("name", "labels", "annotations") if written.get(name) is not None}
    added = {name: written[name] for name, kind in _SERVERS.items() if isinstance(written.get(name), kind)}
    inside = {} if namespace is None else {"namespace": written.get("namespace") or namespace}
    return {**own, **inside, **added}


def _wrong_metadata(body: Mapping[str, Any]) -> str:
    """Return a sentence that describes an error in the name, namespace, labels or annotations; "" if they are valid."""
    metadata, kind = body.get("metadata"), body["kind"]
    if not isinstance(metadata, Mapping) or metadata.get("name") in (None, ""):
        return f"metadata.name is missing in an object of kind {kind}: set it"
    for field in ("name", "namespace"):
        value = metadata.get(field)
        if value is not None and not isinstance(value, str):
            words = "put quotes around it" if isinstance(value, int | float) else "write a string"
            return f"metadata.{field} is {shown(value)} in an object of kind {kind}: {words}"
    for field in ("labels", "annotations"):
        value = metadata.get(field)
        if value is not None and not isinstance(value, Mapping):
            return f"metadata.{field} of {kind} {metadata['name']} is {shown(value)}: write a map of keys and values"
    return ""


def _too_much(body: Mapping[str, Any]) -> str:
    """Return a sentence if the object is too large or too deeply nested to process; "" otherwise."""
    if larger(body, VALUES):
        return f"an object of kind {body['kind']} has more than {VALUES} values: remove YAML aliases (*name)"
    if deeper(body, LEVELS):
        return f"an object of kind {body['kind']} nests lists and maps more than {LEVELS} levels deep: use fewer levels"
    return ""


def _wrong_key(value: Any, where: str) -> str:
    """Return a sentence about the first key that is not a string; "" if all keys are strings. `value` must not be deeper
    than LEVELS, because the function is recursive.
    """
    if isinstance(value, list):
        return next((said for number, entry in enumerate(value) if (said := _wrong_key(entry, f"{where}[{number}]"))), "")
    if not isinstance(value, Mapping):
        return ""
    for key, entry in value.items():
        if not isinstance(key, str):
            return f"{where or 'the object'} has the key {shown(key)}, which is not a string: put quotes around it"
        if said := _wrong_key(entry, f"{where}.{key}" if where else key):
            return said
    return ""
