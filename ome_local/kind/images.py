"""Load images from archives into kind's nodes. Each image is loaded only once, because loading the demo's images takes
more than a minute.
"""

import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

from ome_local.kind import config
from ome_local.kind.program import run
from ome_local.layout import Layout
from ome_operator.errors import UserError


def load(at: Layout, nodes: Sequence[str], file: Path) -> None:
    """Load the images of a docker-archive into these nodes. Nodes that still have the images from an earlier load are
    skipped.
    """
    if not file.is_file():
        raise UserError(f"There is no image archive {file}.")
    facts = file.stat()
    note = at.root / "loaded" / f"{file.name}.{facts.st_size}.{facts.st_mtime_ns}"
    known = set(note.read_text().splitlines()) if note.exists() else set[str]()
    missing = [node for node in nodes if not known or not known <= _there(node)]
    if not missing:
        return
    run(["kind", "load", "image-archive", str(file), "--name", config.name(at), "--nodes", ",".join(missing)])
    names = references(file)
    if seen := {line for line in _there(missing[0]) if line.partition(" ")[0] in names}:
        note.parent.mkdir(exist_ok=True)
        note.write_text("\n".join(sorted(seen)))


def references(file: Path) -> set[str]:
    """Return the full names of the images in a docker-archive. For a file in another format, return no names; such a file
    is loaded every time.
    """
    try:
        with tarfile.open(file, "r:") as archive:
            told = archive.extractfile("manifest.json")
            images = json.load(told) if told else []
    except (tarfile.TarError, KeyError, ValueError):
        return set()
    return {full(name) for image in images for name in image.get("RepoTags") or ()}


def full(name: str) -> str:
    """Return the name of an image as containerd lists it, including the registry that Docker omits."""
    first, slash, _ = name.partition("/")
    if not slash:
        return f"docker.io/library/{name}"
    return name if "." in first or ":" in first or first == "localhost" else f"docker.io/{name}"


def _there(node: str) -> set[str]:
    """Return a text `name digest` for every image of a node. The digest is needed because another archive may have replaced
    an image of the same name.
    """
    listed = run(["docker", "exec", node, "ctr", "--namespace=k8s.io", "images", "list"]).stdout.splitlines()[1:]
    return {f"{name} {digest}" for name, _, digest, *_ in (line.split() for line in listed)}
