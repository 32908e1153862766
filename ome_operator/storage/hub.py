"""`hf://org/model[@revision]`: a Hugging Face hub or a mirror of it.

huggingface_hub says what there is, where, and who we are. It does not fetch: its downloader checks sizes only, and shows a
file before anybody has looked at its hash (docs/models-agent.md has the measurement).
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from ome_operator.storage.hashes import SIZE_ONLY, Hash
from ome_operator.storage.http import Direct, ranged
from ome_operator.storage.listing import Listing, Refused, RemoteFile, Unreachable, listing

HUB = "https://huggingface.co"


class Hub(Direct):
    """One model of one hub."""

    def __init__(self, repo: str, revision: str, *, endpoint: str = "", token: str = "") -> None:
        super().__init__()
        if repo.count("/") != 1 or not all(repo.split("/")):
            raise Refused(f"hf://{repo} is no model of a hub: write hf://organization/model[@revision]")
        self._repo, self._revision = repo, revision
        self._endpoint, self._token = endpoint or HUB, token

    async def listing(self, revision: str) -> Listing:
        """All files of the commit that `revision`, or what the URI says, stands for now."""
        return await asyncio.to_thread(self._list, revision or self._revision or "main")

    def _list(self, revision: str) -> Listing:
        from huggingface_hub import HfApi, errors

        api = HfApi(endpoint=self._endpoint, token=self._token or False)
        try:
            info = api.model_info(self._repo, revision=revision, files_metadata=True, timeout=30.0)
        except errors.RevisionNotFoundError as error:
            raise Refused(f"the model {self._repo} has no revision {revision}") from error
        except errors.HfHubHTTPError as error:
            code = getattr(error.response, "status_code", 0)
            if code in (401, 403, 404):
                said = "the token of spec.storage.key does not open it" if self._token else "spec.storage.key gives no token"
                raise Refused(f"{self._endpoint} has no model {self._repo}, or does not show it to us ({said})") from error
            raise Unreachable(f"the hub answers {code} for {self._repo}", _seconds(error.response.headers)) from error
        except Exception as error:  # httpx's errors, and JSON that is none; no class of ours to name them by
            raise Unreachable(f"the hub {self._endpoint} does not answer: {type(error).__name__}") from error
        return listing((_file(one) for one in info.siblings or ()), str(info.sha))

    async def read(self, listing: Listing, file: RemoteFile, start: int, end: int) -> AsyncIterator[bytes]:
        """The file's bytes from `start` up to, and without, `end`."""
        from huggingface_hub import hf_hub_url

        url = hf_hub_url(self._repo, file.name, revision=listing.revision, endpoint=self._endpoint)
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        async for data in ranged(self._open(), url, start, end, file.size, headers):
            yield data


def _file(one: Any) -> RemoteFile:
    if one.lfs is not None:
        return RemoteFile(one.rfilename, int(one.lfs.size), Hash("sha256", str(one.lfs.sha256)))
    return RemoteFile(one.rfilename, int(one.size or 0), Hash("git", str(one.blob_id)) if one.blob_id else SIZE_ONLY)


def _seconds(headers: Any) -> float:
    text = str(headers.get("Retry-After", "") or "")
    return float(text) if text.isdigit() else 0.0
