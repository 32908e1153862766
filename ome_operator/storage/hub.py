"""`hf://org/model[@revision]`: a Hugging Face hub or a mirror of a hub.

The protocol is implemented here with aiohttp. The library huggingface_hub makes requests in a thread that outlives its
model, reads responses of any length for any time, and follows every redirect; its downloader checks sizes only
(docs/models-agent.md has the measurement).
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from itertools import islice
from typing import Any
from urllib.parse import quote

from ome_operator.storage.addresses import HUB, HostRules
from ome_operator.storage.hashes import SIZE_ONLY, Hash
from ome_operator.storage.http import (
    NO_HEADERS,
    Credential,
    FileAbsent,
    HttpSource,
    SourceUnauthorized,
    read_range,
    read_small,
)
from ome_operator.storage.listing import (
    MAX_FILES,
    Listing,
    RemoteFile,
    RequestRefused,
    SourceUnreachable,
    is_plain,
    make_listing,
)
from ome_operator.util.json_limits import MIB, TooLarge, parse_untrusted
from ome_operator.util.untrusted_json import PARSE_ERRORS, text

LIMIT = 20 * 1024 * 1024
"""Maximum number of bytes of the hub's description of a model. The description of 50,000 files has about 15 MB."""
MEMORY = 192 * MIB
"""Maximum bytes of memory while the description is parsed (`json_limits.parse_untrusted`)."""
_REPOSITORY = re.compile(r"[A-Za-z0-9._-]+/[A-Za-z0-9._-]+")


class Hub(HttpSource):
    """One model on one hub."""

    def __init__(
        self,
        repo: str,
        revision: str,
        *,
        endpoint: str = "",
        token: str = "",
        check_secret: Callable[[str], None] = lambda address: None,
        reach: HostRules | None = None,
    ) -> None:
        """Initialize the source. `check_secret` raises RequestRefused for an address that must not receive the token.
        `endpoint` is the URL of the hub; "" for huggingface.co. `reach` states which addresses may be contacted; None
        permits every address.
        """
        super().__init__(reach)
        if not _REPOSITORY.fullmatch(repo) or not all(part.strip(".") for part in repo.split("/")):
            raise RequestRefused(f"hf://{repo} is not a valid model name of a hub: write hf://organization/model[@revision]")
        self._repo, self._revision = repo, revision
        self._endpoint = (endpoint or HUB).rstrip("/")
        self._credential = Credential(f"Bearer {token}", check_secret) if token else None

    async def listing(self, revision: str) -> Listing:
        """Return all files of a commit. It is the commit of `revision` if `revision` is not "", otherwise the commit of the
        URI's revision, otherwise the commit of the branch main.
        """
        wanted = revision or self._revision or "main"
        if not is_plain(wanted):
            raise RequestRefused(f"{wanted[:80]!r} is not a revision of a hub: write a branch, a tag or a commit")
        url = f"{self._endpoint}/api/models/{quote(self._repo)}/revision/{quote(wanted, safe='')}?blobs=true"
        try:
            raw = await read_small(self._open(), url, LIMIT, NO_HEADERS, self._credential)
        except (FileAbsent, SourceUnauthorized) as error:
            raise self._hidden(wanted, error) from error
        return await asyncio.to_thread(self.read_description, raw)

    def read_description(self, raw: bytes) -> Listing:
        """Return the files in the hub's JSON description of a model. Raises RequestRefused if the description is too large,
        and SourceUnreachable if it is invalid.
        """
        try:
            files, commit = parse_untrusted(raw, "its description", memory=MEMORY, extract=_description)
        except TooLarge as error:
            raise RequestRefused(
                f"the hub {self._endpoint} sent a longer description of {self._repo} than agents read: {error}"
            ) from error
        except PARSE_ERRORS as error:
            raise SourceUnreachable(f"the hub {self._endpoint} sent invalid metadata of {self._repo}") from error
        return make_listing(files, commit)

    def _hidden(self, wanted: str, error: RequestRefused) -> RequestRefused:
        if isinstance(error, FileAbsent) and error.code == "RevisionNotFound":
            return RequestRefused(
                f"the model {self._repo} has no revision {wanted}: correct the revision in spec.storage.storageUri"
            )
        reason = "the token of spec.storage.key has no access" if self._credential else "spec.storage.key provides no token"
        return RequestRefused(
            f"{self._endpoint} has no model {self._repo}, or denies access to it ({reason}): check "
            "spec.storage.storageUri and the Secret of spec.storage.key"
        )

    async def read(self, listing: Listing, file: RemoteFile, start: int, end: int) -> AsyncIterator[bytes]:
        """Iterate over the file's bytes from `start` up to, and excluding, `end`."""
        url = f"{self._endpoint}/{quote(self._repo)}/resolve/{quote(listing.revision, safe='')}/{quote(file.name)}"
        async for data in read_range(self._open(), url, start, end, file.size, self._credential):
            yield data


def _description(value: Any) -> tuple[list[RemoteFile], str]:
    """Return the files and the commit in the description of a model. Raises one of PARSE_ERRORS if a field is missing or
    invalid.
    """
    return [_file(item) for item in islice(value["siblings"], MAX_FILES + 1)], text(value["sha"])


def _file(item: Mapping[str, Any]) -> RemoteFile:
    name = item["rfilename"]
    if not isinstance(name, str):
        raise TypeError("a file name is not a string")
    if lfs := item.get("lfs"):
        return RemoteFile(name, int(lfs["size"]), Hash("sha256", _hex(lfs["sha256"], 64)))
    blob = item.get("blobId")
    return RemoteFile(name, int(item.get("size") or 0), Hash("git", _hex(blob, 40)) if blob else SIZE_ONLY)


def _hex(text: Any, digits: int) -> str:
    if not re.fullmatch(rf"[0-9a-f]{{{digits}}}", str(text)):
        raise ValueError("not a hash")
    return str(text)
