"""`hf://org/model[@revision]`: a Hugging Face hub or a mirror of it.

Spoken by hand over aiohttp. huggingface_hub asks in a thread that outlives its model, reads answers of any length for any
time, and connects wherever it is led; its downloader checks sizes only (docs/models-agent.md has the measurement).
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any
from urllib.parse import quote

from ome_operator.storage.addresses import HUB
from ome_operator.storage.hashes import SIZE_ONLY, Hash
from ome_operator.storage.http import Absent, Direct, SourceUnauthorized, ranged, small
from ome_operator.storage.listing import Listing, Refused, RemoteFile, Unreachable, listing
from ome_operator.util.unread import UNREAD

LIMIT = 32 * 1024 * 1024
"""Bytes of a description: 50,000 files have about 15 MB."""


class Hub(Direct):
    """One model of one hub."""

    def __init__(
        self, repo: str, revision: str, *, endpoint: str = "", token: str = "", private: Collection[str] | None = None
    ) -> None:
        super().__init__(private)
        if repo.count("/") != 1 or not all(part.strip(".") for part in repo.split("/")):
            raise Refused(f"hf://{repo} is no model of a hub: write hf://organization/model[@revision]")
        self._repo, self._revision = repo, revision
        self._endpoint = (endpoint or HUB).rstrip("/")
        self._given = bool(token)
        self._headers: Mapping[str, str] = {"Authorization": f"Bearer {token}"} if token else {}

    async def listing(self, revision: str) -> Listing:
        """All files of the commit that `revision`, or what the URI says, stands for now."""
        wanted = revision or self._revision or "main"
        url = f"{self._endpoint}/api/models/{quote(self._repo)}/revision/{quote(wanted, safe='')}?blobs=true"
        try:
            raw = await small(self._open(), url, LIMIT, self._headers)
        except (Absent, SourceUnauthorized) as error:
            raise self._hidden(wanted, error) from error
        return await asyncio.to_thread(self.read_description, raw)

    def read_description(self, raw: bytes) -> Listing:
        """The files that a description names; raises Refused or Unreachable."""
        try:
            said = json.loads(raw)
            files, commit = [_file(item) for item in said["siblings"]], str(said["sha"])
        except UNREAD as error:
            raise Unreachable(f"the hub {self._endpoint} sends a description of {self._repo} that cannot be read") from error
        return listing(files, commit)

    def _hidden(self, wanted: str, error: Refused) -> Refused:
        if isinstance(error, Absent) and error.code == "RevisionNotFound":
            return Refused(f"the model {self._repo} has no revision {wanted}")
        said = "the token of spec.storage.key does not open it" if self._given else "spec.storage.key gives no token"
        return Refused(f"{self._endpoint} has no model {self._repo}, or does not show it to us ({said})")

    async def read(self, listing: Listing, file: RemoteFile, start: int, end: int) -> AsyncIterator[bytes]:
        """The file's bytes from `start` up to, and without, `end`."""
        url = f"{self._endpoint}/{quote(self._repo)}/resolve/{quote(listing.revision, safe='')}/{quote(file.name)}"
        async for data in ranged(self._open(), url, start, end, file.size, self._headers):
            yield data


def _file(item: Mapping[str, Any]) -> RemoteFile:
    name = item["rfilename"]
    if not isinstance(name, str):
        raise TypeError("a name is no text")
    if lfs := item.get("lfs"):
        return RemoteFile(name, int(lfs["size"]), Hash("sha256", _hex(lfs["sha256"], 64)))
    blob = item.get("blobId")
    return RemoteFile(name, int(item.get("size") or 0), Hash("git", _hex(blob, 40)) if blob else SIZE_ONLY)


def _hex(text: Any, digits: int) -> str:
    if not re.fullmatch(rf"[0-9a-f]{{{digits}}}", str(text)):
        raise ValueError("no hash")
    return str(text)
