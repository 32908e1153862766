"""YAML that a person names on the command line: files, folders, and `-` for what comes in."""

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
"""Kinds that refer to the others."""
_SERVERS: Mapping[str, type] = {"uid": str, "generation": int, "deletionTimestamp": str}
"""Metadata that a server adds and that we look at, and what it is then. Owners and writers say nothing without a cluster."""


def catalogue(paths: Iterable[Path] | None) -> list[Path]:
    """Folders with models and runtimes; `config`, where there is none, is that which came with this program."""
    return [
        path if path.exists() or path.parts[:1] != ("config",) else shipped("config").joinpath(*path.parts[1:])
        for path in paths or ()
    ]


def read(paths: Iterable[Path], namespace: str) -> list[Manifest]:
    """The objects of ours in these files and folders; `namespace` for those that name none. Others are passed over."""
    return read_all(paths, namespace)[0]


def read_beside(paths: Iterable[Path], given: Iterable[Path], namespace: str) -> list[Manifest]:
    """What services refer to, from files that are not among those given: these are read already."""
    known = {file.resolve() for file in files_in(given)}
    found = read((file for file in files_in(paths) if file.resolve() not in known), namespace)
    return [body for body in found if body["kind"] not in SERVICES]


def read_all(paths: Iterable[Path], namespace: str) -> tuple[list[Manifest], frozenset[str]]:
    """The objects of ours, and the namespaces that these files make."""
    found = [document for path in paths for document in _documents(path)]
    objects = [one for where, body in found for one in _objects(where, body, namespace)]
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
    """The files that are named, and those of the folders that are named."""
    for path in paths:
        yield from sorted([*path.rglob("*.yaml"), *path.rglob("*.yml"), *path.rglob("*.json")]) if path.is_dir() else [path]


def _documents(path: Path) -> Iterator[tuple[str, Any]]:
    """(where it stands, document) for every document."""
    for one in files_in([path]):
        where = "standard input" if one == STDIN else str(one)
        try:
            text = sys.stdin.read() if one == STDIN else one.read_text()
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
    # What else people write there is the parser's business; a status that is no map would not come from a server.
    status: Manifest = {} if isinstance(body.get("status", {}), Mapping) else {"status": {}}
    yield {**body, **status, "metadata": _metadata(body["metadata"], namespace if RESOURCES[kind].namespaced else None)}


def _metadata(written: Mapping[str, Any], namespace: str | None) -> Manifest:
    """What we look at of it; `namespace` for an object that names none, None for a kind that has none."""
    own = {name: written[name] for name in ("name", "labels", "annotations") if written.get(name) is not None}
    added = {name: written[name] for name, kind in _SERVERS.items() if isinstance(written.get(name), kind)}
    inside = {} if namespace is None else {"namespace": written.get("namespace") or namespace}
    return {**own, **inside, **added}


def _wrong_metadata(body: Mapping[str, Any]) -> str:
    """What is wrong with who an object is, as a sentence; "" when all is well."""
    metadata, kind = body.get("metadata"), body["kind"]
    if not isinstance(metadata, Mapping) or metadata.get("name") in (None, ""):
        return f"metadata.name is missing in an object of kind {kind}: give it one"
    for field in ("name", "namespace"):
        value = metadata.get(field)
        if value is not None and not isinstance(value, str):
            words = "put quotes around it" if isinstance(value, int | float) else "write a text"
            return f"metadata.{field} is {shown(value)} in an object of kind {kind}: {words}"
    for field in ("labels", "annotations"):
        value = metadata.get(field)
        if value is not None and not isinstance(value, Mapping):
            return f"metadata.{field} of {kind} {metadata['name']} is {shown(value)}: write a map of keys and values"
    return ""


def _too_much(body: Mapping[str, Any]) -> str:
    """Why nobody can walk through an object, as a sentence; "" when one can."""
    if larger(body, VALUES):
        return f"an object of kind {body['kind']} has more than {VALUES} values: take out aliases (*name)"
    if deeper(body, LEVELS):
        return f"an object of kind {body['kind']} has more than {LEVELS} lists or maps in each other: write fewer"
    return ""


def _wrong_key(value: Any, where: str) -> str:
    """The first key that is no text, as a sentence; "" when all are. Only for what is not too deep."""
    if isinstance(value, list):
        return next((said for number, one in enumerate(value) if (said := _wrong_key(one, f"{where}[{number}]"))), "")
    if not isinstance(value, Mapping):
        return ""
    for key, one in value.items():
        if not isinstance(key, str):
            return f"{where or 'the object'} has the key {shown(key)}, which is no text: put quotes around it"
        if said := _wrong_key(one, f"{where}.{key}" if where else key):
            return said
    return ""
