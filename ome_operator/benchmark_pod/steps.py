"""The two steps of the pod that this project implements: the preparation before the benchmark, and the report after it."""

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import BinaryIO

from ome_operator.benchmark_pod import inside, inside_genai
from ome_operator.benchmark_pod.page import page
from ome_operator.benchmark_pod.results import Json, has_failed, results, summary
from ome_operator.storage import http
from ome_operator.storage.listing import RequestRefused, SourceError
from ome_operator.storage.object_store import ObjectStore
from ome_operator.storage.sources import Access, open_bucket

TRIES = 4
"""Number of attempts to write a file to an object store."""


def prepare(plan: Json, work: Path, secrets: Path) -> None:
    """Copy the programs for the image of the benchmark, and download the data set. Raises SourceError if the data set
    cannot be downloaded.
    """
    for program in (inside, inside_genai):
        shutil.copy(str(program.__file__), work)
    dataset = plan["dataset"]
    if not dataset:
        return
    target = Path(dataset["path"])
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        asyncio.run(_fetch(dataset["uri"], _access(dataset, secrets / "dataset"), file))


async def _fetch(uri: str, access: Access, file: BinaryIO) -> None:
    async for data in _read(uri, access):
        file.write(data)


async def _read(uri: str, access: Access) -> AsyncIterator[bytes]:
    """Return the bytes of one file, from an object store or a URL."""
    if uri.partition("://")[0] in ("http", "https"):
        async with http.session() as session:
            async for data in http.read_all(session, uri):
                yield data
        return
    source = open_bucket(uri, access)
    listed = await source.listing("")
    if len(listed.files) != 1:
        raise RequestRefused(f"spec.dataset.storageUri {uri} contains {len(listed.files)} files: name a single file")
    async for data in source.read(listed, listed.files[0], 0, listed.size):
        yield data


def report(plan: Json, work: Path, secrets: Path, message: Path) -> bool:
    """Write results.json, report.html and the termination message. Return whether all requests succeeded.

    The message is written before files are uploaded, so that the job's status contains the results even if the upload fails.
    """
    report_data = results(plan, _raw(work / inside.RAW))
    output = plan["output"]
    message.write_text(summary(report_data, output.get("uri") or output["path"]))
    files = {"results.json": json.dumps(report_data, indent=1), "report.html": page(report_data)}
    folder = Path(output["path"])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    if "uri" in output:
        asyncio.run(_send(open_bucket(output["uri"], _access(output, secrets / "output")), files))
    return not has_failed(report_data)


async def _send(store: ObjectStore, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        await _sent(store, name, text.encode())


async def _sent(store: ObjectStore, name: str, data: bytes) -> None:
    for attempts_left in reversed(range(TRIES)):
        try:
            await store.write(name, data)
            return
        except RequestRefused:
            raise
        except SourceError:
            if not attempts_left:
                raise
            await asyncio.sleep(2.0 ** (TRIES - attempts_left))


def _raw(folder: Path) -> Mapping[int, Json]:
    """Return the outcomes of the runs that can be parsed, by run number. A file may be incomplete if the container exited
    during a write, and it is untrusted because a user chooses the image.
    """
    outcomes = {}
    for file in folder.glob("*.json"):
        with contextlib.suppress(ValueError, RecursionError):
            outcomes[int(file.stem)] = json.loads(file.read_text())
    return outcomes


def _access(settings: Json, secret: Path) -> Access:
    """Return the settings and permissions for a store, from the spec and the files of the Secret."""
    values = {file.name: file.read_text() for file in secret.iterdir() if file.is_file()} if secret.is_dir() else {}
    return Access(settings.get("parameters") or {}, values)
