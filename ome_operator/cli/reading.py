"""YAML that a person names on the command line: files, folders, and `-` for what comes in."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from ome_operator.ask.gather import KNOWN
from ome_operator.facts import Manifest
from ome_operator.kube.kinds import RESOURCES, called
from ome_operator.local.errors import Unanswered

STDIN = Path("-")


def read(paths: Iterable[Path], namespace: str) -> list[Manifest]:
    """The objects of ours in these files and folders; `namespace` for those that name none. Others are passed over."""
    return [one for path in paths for where, body in _documents(path) for one in _objects(where, body, namespace)]


def _documents(path: Path) -> Iterator[tuple[str, Any]]:
    """(where it stands, document) for every document."""
    found = sorted([*path.rglob("*.yaml"), *path.rglob("*.yml"), *path.rglob("*.json")]) if path.is_dir() else [path]
    for one in found:
        where = "standard input" if one == STDIN else str(one)
        try:
            text = sys.stdin.read() if one == STDIN else one.read_text()
            yield from ((where, document) for document in yaml.safe_load_all(text))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
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
    metadata = body.get("metadata")
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str):
        raise Unanswered(f"{where}: a {body['kind']} has no metadata.name: give it one.")
    inside = {"namespace": metadata.get("namespace") or namespace} if RESOURCES[kind].namespaced else {}
    # What else people write there is the parser's business; a status that is no map would not come from a server.
    status: Manifest = {} if isinstance(body.get("status", {}), Mapping) else {"status": {}}
    yield {**body, **status, "metadata": {**metadata, **inside}}
