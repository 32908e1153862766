"""Object stores: `s3://` and what is compatible with it, `gs://`, `az://`, and `oci://n/…` through its S3 door.

obstore and not fsspec's clients: s3fs needs a botocore whose python-dateutil is older than the one that the kubernetes
client needs, so the two cannot be installed together. Credentials come from the Secret's files, else from the pod (workload
identity). Of what a store knows about the bytes obstore shows the ETag alone: no CRC, no Content-MD5.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from ome_operator.storage import sha256sums
from ome_operator.storage.forward import Forward
from ome_operator.storage.hashes import SIZE_ONLY, Checker, from_etag
from ome_operator.storage.listing import MOST, Listing, Refused, RemoteFile, Unreachable, listing

STEP = 16 * 1024 * 1024
"""Bytes per request."""
_CLIENT: Any = {"timeout": "300s", "connect_timeout": "15s"}
_CODE = re.compile(r"status code: (\d{3})")
_ONCE: Any = {"max_retries": 0}
"""Who repeats is the download, which knows how far it is."""


def google(bucket: str, given: Mapping[str, str], secret: Mapping[str, str], proxy: str) -> Any:
    """A bucket of Google Cloud, or of what speaks like it at `endpoint`; the Secret's `serviceAccountKey` opens it."""
    from obstore.store import GCSStore

    keys = _shown(given, secret, {"service_account_key": "serviceAccountKey"})
    if endpoint := given.get("endpoint"):
        keys["base_url"] = endpoint
    return GCSStore(bucket, client_options=_client(endpoint, proxy), retry_config=_ONCE, **keys)


def azure(container: str, given: Mapping[str, str], secret: Mapping[str, str], proxy: str) -> Any:
    """A container of Azure, or of what speaks like it at `endpoint`; the Secret's `accountKey` opens it."""
    from obstore.store import AzureStore

    keys = _shown(given, secret, {"account_key": "accountKey"})
    if endpoint := given.get("endpoint"):
        keys["endpoint"] = endpoint
    options = _client(endpoint, proxy)
    return AzureStore(container, account_name=given["account"], client_options=options, retry_config=_ONCE, **keys)


def s3(bucket: str, region: str, endpoint: str, given: Mapping[str, str], secret: Mapping[str, str], proxy: str) -> Any:
    """A bucket of S3 or of what is compatible; `accessKeyId`, `secretAccessKey`, `sessionToken` of the Secret open it."""
    from obstore.store import S3Store

    words = {"access_key_id": "accessKeyId", "secret_access_key": "secretAccessKey", "session_token": "sessionToken"}
    keys = _shown(given, secret, words)
    if endpoint:
        keys["endpoint"] = endpoint
    return S3Store(bucket, region=region, client_options=_client(endpoint, proxy), retry_config=_ONCE, **keys)


def _shown(given: Mapping[str, str], secret: Mapping[str, str], words: Mapping[str, str]) -> Any:
    """What of a Secret a store is shown, by the store's names; with `anonymous` nothing, not even what the pod is.

    So, too, with a Secret that has none of these words (a hub's token): that was granted for this host, and who the pod is
    was not.
    """
    shown = {name: secret[word].strip() for name, word in words.items() if word in secret}
    if given.get("anonymous") == "true" or (secret and not shown):
        return {"skip_signature": True}
    return shown


def _client(endpoint: str | None, proxy: str) -> Any:
    """Options of a client; plain HTTP only where somebody writes it. Without `proxy` the environment's counts."""
    through = {"proxy_url": proxy} if proxy else {}
    return {**_CLIENT, **through, "allow_http": (endpoint or "").startswith("http://")}


class Objects:
    """The objects below one prefix."""

    def __init__(self, make: Callable[[str], Any], prefix: str, *, only: str = "", sizes_only: bool = False) -> None:
        """`make` gives a store behind a proxy, "" for none; `only` is the address that it may connect to, "" for any."""
        self._make, self._prefix, self._sizes_only = make, prefix.strip("/"), sizes_only
        self._forward = Forward(only) if only else None
        self._store: Any = None
        self._opening = asyncio.Lock()
        self._sums = b""
        """SHA256SUMS, once it was read."""

    async def listing(self, revision: str) -> Listing:
        """All objects, by the SHA-256 of a SHA256SUMS among them; a store has one revision, the present one."""
        files = await self._list()
        if named := next((item for item in files if item.name == sha256sums.NAME), None):
            self._sums = await self._read_sums(named)
            files = sha256sums.proven(files, self._sums)
        made = listing(files)
        if revision and revision != made.revision:
            raise Refused(f"the files there are not those of revision {revision[:12]} any more: give the new ones a new URI")
        return made

    async def _list(self) -> list[RemoteFile]:
        found = []
        try:
            async for batch in (await self._open()).list(prefix=self._prefix or None):
                found += [item for item in batch if not item["path"].endswith("/")]
                if len(found) > MOST:
                    break
        except Exception as error:
            raise self._error(error) from error
        return [self._file(item) for item in found]

    async def _read_sums(self, file: RemoteFile) -> bytes:
        """SHA256SUMS. Bytes that are not those of the ETag count if they come twice: not every ETag is an MD5."""
        if file.size > sha256sums.LIMIT:
            raise Refused(
                f"{sha256sums.NAME} has {file.size} bytes, and more than {sha256sums.LIMIT} are not read: is it one?"
            )
        before = None
        for _ in range(2):
            checker, data = Checker(file.hash, file.size), await self._whole(file)
            checker.update(data)
            if checker.complete or data == before:
                return data
            before = data
        raise Unreachable(f"{sha256sums.NAME} came twice, with two contents")

    async def _whole(self, file: RemoteFile) -> bytes:
        """All bytes of a small object."""
        try:
            got = await (await self._open()).get_async(self._path(file))
            data = memoryview(await got.bytes_async()).tobytes() if got.meta["size"] == file.size else b""
        except Exception as error:
            raise self._error(error, f"{file.name}: ") from error
        if len(data) != file.size:
            raise Unreachable(f"{file.name} changed since the object store listed it")
        return data

    def _file(self, item: Mapping[str, Any]) -> RemoteFile:
        name = str(item["path"]).removeprefix(self._prefix).lstrip("/") or str(item["path"]).rpartition("/")[2]
        proof = SIZE_ONLY if self._sizes_only else from_etag(item["e_tag"], item["size"])
        return RemoteFile(name, int(item["size"]), proof)

    async def read(self, listing: Listing, file: RemoteFile, start: int, end: int) -> AsyncIterator[bytes]:
        """The object's bytes from `start` up to, and without, `end`."""
        if file.name == sha256sums.NAME and self._sums:
            yield self._sums[start:end]
            return
        try:
            store = await self._open()
            while start < end:
                data = await store.get_range_async(self._path(file), start=start, end=min(start + STEP, end))
                if not len(data):
                    return
                yield memoryview(data).tobytes()
                start += len(data)
        except Exception as error:
            raise self._error(error) from error

    def _path(self, file: RemoteFile) -> str:
        return f"{self._prefix}/{file.name}" if self._prefix.rpartition("/")[2] != file.name else self._prefix

    async def write(self, name: str, data: bytes) -> None:
        """Put an object of this name below the prefix; raises Refused or Unreachable."""
        from obstore import put_async

        try:
            await put_async(await self._open(), f"{self._prefix}/{name}".lstrip("/"), data)
        except Exception as error:
            raise self._error(error) from error

    def suspect(self, file: RemoteFile) -> None:
        """There is nobody else to ask."""

    async def close(self) -> None:
        """Close connections."""
        if self._forward is not None:
            await self._forward.close()

    async def _open(self) -> Any:
        async with self._opening:
            if self._store is None:
                self._store = self._make(await self._forward.open() if self._forward else "")
            return self._store

    def _error(self, error: Exception, about: str = "") -> Refused | Unreachable:
        if self._forward is not None and (other := self._forward.refused):
            return Refused(f"the object store leads to {other[:80]!r}, and agents ask the host alone that the model names")
        return _our_error(error, about)


def _our_error(error: Exception, about: str = "") -> Refused | Unreachable:
    """An error of the store by its status code; its text may hold signed addresses and stays out.

    The error's class does not tell: what a listing is refused is of the same class as a connection that broke.
    """
    code = _CODE.search(str(error))
    said = f"{about}the object store answers {code[1] if code else type(error).__name__}"
    if code and code[1] in ("401", "403", "404"):
        return Refused(f"{said}: look at spec.storage.storageUri and what the Secret of spec.storage.key opens")
    return Unreachable(said)
