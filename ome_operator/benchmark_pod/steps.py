"""The two steps of the pod that are ours: what comes before the benchmark, and what becomes of its results."""

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import BinaryIO

from ome_operator.benchmark_pod import inside, inside_genai
from ome_operator.benchmark_pod.page import page
from ome_operator.benchmark_pod.results import Json, failed, results, summary
from ome_operator.storage import http
from ome_operator.storage.listing import Refused, SourceError
from ome_operator.storage.object_store import ObjectStore
from ome_operator.storage.sources import Access, open_bucket

TRIES = 4
"""Attempts to send a file to an object store."""


def prepare(plan: Json, work: Path, secrets: Path) -> None:
    """Put the files beside that run in the image of the benchmark, and fetch the data set. Raises SourceError."""
    for program in (inside, inside_genai):
        shutil.copy(str(program.__file__), work)
    wanted = plan["dataset"]
    if not wanted:
        return
    target = Path(wanted["path"])
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        asyncio.run(_fetch(wanted["uri"], _access(wanted, secrets / "dataset"), file))


async def _fetch(uri: str, access: Access, file: BinaryIO) -> None:
    async for data in _read(uri, access):
        file.write(data)


async def _read(uri: str, access: Access) -> AsyncIterator[bytes]:
    """The bytes of one file, from an object store or a URL."""
    if uri.partition("://")[0] in ("http", "https"):
        async with http.session() as session:
            async for data in http.read_all(session, uri):
                yield data
        return
    source = open_bucket(uri, access)
    listed = await source.listing("")
    if len(listed.files) != 1:
        raise Refused(f"spec.dataset.storageUri {uri} holds {len(listed.files)} files: name one")
    async for data in source.read(listed, listed.files[0], 0, listed.size):
        yield data


def report(plan: Json, work: Path, secrets: Path, message: Path) -> bool:
    """Write results.json, report.html and the termination message; whether every request was answered.

    The message is written before anything is sent, so that results that cannot be kept are not lost for the status.
    """
    found = results(plan, _raw(work / inside.RAW))
    out = plan["output"]
    message.write_text(summary(found, out.get("uri") or out["path"]))
    made = {"results.json": json.dumps(found, indent=1), "report.html": page(found)}
    folder = Path(out["path"])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    if "uri" in out:
        asyncio.run(_send(open_bucket(out["uri"], _access(out, secrets / "output")), made))
    return not failed(found)


async def _send(store: ObjectStore, made: Mapping[str, str]) -> None:
    for name, text in made.items():
        await _sent(store, name, text.encode())


async def _sent(store: ObjectStore, name: str, data: bytes) -> None:
    for left in reversed(range(TRIES)):
        try:
            await store.write(name, data)
            return
        except Refused:
            raise
        except SourceError:
            if not left:
                raise
            await asyncio.sleep(2.0 ** (TRIES - left))


def _raw(folder: Path) -> Mapping[int, Json]:
    """What can be read: the container may have ended while it wrote, and its image is a user's."""
    found = {}
    for file in folder.glob("*.json"):
        with contextlib.suppress(ValueError, RecursionError):
            found[int(file.stem)] = json.loads(file.read_text())
    return found


def _access(place: Json, secret: Path) -> Access:
    """How to reach a store: what the spec says, and the files of the Secret."""
    values = {file.name: file.read_text() for file in secret.iterdir() if file.is_file()} if secret.is_dir() else {}
    return Access(place.get("parameters") or {}, values)
