"""Clients of object stores: `s3://` and compatible stores, `gs://`, `az://`, and `oci://n/…` through its S3-compatible API.

The library is obstore. The clients of fsspec are not used: s3fs cannot be installed together with the kubernetes client,
because its botocore requires an older python-dateutil. Credentials come from the files of the Secret if there is one,
otherwise from the pod (workload identity). Of the store's checksums, obstore returns only the ETag, and neither a CRC nor
Content-MD5.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from ome_operator.storage import sha256sums
from ome_operator.storage.hashes import SIZE_ONLY, Checker, from_etag
from ome_operator.storage.listing import MAX_FILES, Listing, RemoteFile, RequestRefused, SourceUnreachable, make_listing
from ome_operator.storage.loopback_proxy import LoopbackProxy

STEP = 16 * 1024 * 1024
"""Bytes per request."""
_CLIENT: Any = {"timeout": "300s", "connect_timeout": "15s"}
_CODE = re.compile(r"status code: (\d{3})")
_ONCE: Any = {"max_retries": 0}
"""Options that disable the client's own retries, because the download itself retries and keeps track of the received
bytes."""


def google(bucket: str, parameters: Mapping[str, str], secret: Mapping[str, str], proxy: str) -> Any:
    """Return a bucket of Google Cloud, or of a compatible store at `endpoint`; credentials are the Secret's
    `serviceAccountKey`.
    """
    from obstore.store import GCSStore

    keys = _credentials(parameters, secret, {"service_account_key": "serviceAccountKey"})
    if endpoint := parameters.get("endpoint"):
        keys["base_url"] = endpoint
    return GCSStore(bucket, client_options=_client_options(endpoint, proxy), retry_config=_ONCE, **keys)


def azure(container: str, parameters: Mapping[str, str], secret: Mapping[str, str], proxy: str) -> Any:
    """Return a container of Azure, or of a compatible store at `endpoint`; the credential is the Secret's `accountKey`. The
    value `account` of `parameters` is required; `endpoint` is optional.
    """
    from obstore.store import AzureStore

    keys = _credentials(parameters, secret, {"account_key": "accountKey"})
    if endpoint := parameters.get("endpoint"):
        keys["endpoint"] = endpoint
    options = _client_options(endpoint, proxy)
    return AzureStore(container, account_name=parameters["account"], client_options=options, retry_config=_ONCE, **keys)


def s3(bucket: str, region: str, endpoint: str, parameters: Mapping[str, str], secret: Mapping[str, str], proxy: str) -> Any:
    """Return a bucket of S3 or of a compatible store.

    Credentials are `accessKeyId`, `secretAccessKey` and `sessionToken` of the Secret.
    """
    from obstore.store import S3Store

    words = {"access_key_id": "accessKeyId", "secret_access_key": "secretAccessKey", "session_token": "sessionToken"}
    keys = _credentials(parameters, secret, words)
    if endpoint:
        keys["endpoint"] = endpoint
    return S3Store(bucket, region=region, client_options=_client_options(endpoint, proxy), retry_config=_ONCE, **keys)


def _credentials(parameters: Mapping[str, str], secret: Mapping[str, str], words: Mapping[str, str]) -> Any:
    """Return the credentials in a Secret, by the names that the store's client uses. `words` maps these names to keys of
    the Secret.

    With the parameter `anonymous`, requests are not signed, not even with the identity of the pod. The same applies to a
    Secret without any of the keys (such as a hub's token), because the administrator permitted that Secret for this host,
    but not the identity of the pod.
    """
    credentials = {name: secret[word].strip() for name, word in words.items() if word in secret}
    if parameters.get("anonymous") == "true" or (secret and not credentials):
        return {"skip_signature": True}
    return credentials


def _client_options(endpoint: str | None, proxy: str) -> Any:
    """Return the options of a client. Plain HTTP is permitted only for an explicit endpoint. If `proxy` is "", the proxy
    of the environment is used.
    """
    proxy_options = {"proxy_url": proxy} if proxy else {}
    return {**_CLIENT, **proxy_options, "allow_http": (endpoint or "").startswith("http://")}


class ObjectStore:
    """The objects of a store whose names begin with one prefix."""

    def __init__(self, make: Callable[[str], Any], prefix: str, *, only: str = "", sizes_only: bool = False) -> None:
        """Initialize the store.

        `make` creates the client; its argument is the URL of a proxy, or "" for no proxy. `prefix` is the beginning of the
        names of the objects. `only` is the only address to which the client may connect; "" for any address. If `sizes_only`
        is true, the store's ETags are not used as hashes.
        """
        self._make, self._prefix, self._sizes_only = make, prefix.strip("/"), sizes_only
        self._proxy = LoopbackProxy(only) if only else None
        self._store: Any = None
        self._opening = asyncio.Lock()
        self._sums = b""
        """Contents of SHA256SUMS; b"" before the file was read."""

    async def listing(self, revision: str) -> Listing:
        """Return all objects, with the hashes in the object SHA256SUMS if it exists. A store has a single revision, the
        current one. Raises RequestRefused for any other `revision`.
        """
        files = await self._list()
        if sums_file := next((item for item in files if item.name == sha256sums.NAME), None):
            self._sums = await self._read_sums(sums_file)
            files = sha256sums.with_hashes(files, self._sums)
        result = make_listing(files)
        if revision and revision != result.revision:
            raise RequestRefused(
                f"the files in the store differ from revision {revision[:12]}: upload the new files to another URI"
            )
        return result

    async def _list(self) -> list[RemoteFile]:
        objects = []
        try:
            async for batch in (await self._open()).list(prefix=self._prefix or None):
                objects += [item for item in batch if not item["path"].endswith("/")]
                if len(objects) > MAX_FILES:
                    break
        except Exception as error:
            raise self._error(error) from error
        return [self._file(item) for item in objects]

    async def _read_sums(self, file: RemoteFile) -> bytes:
        """Return the contents of SHA256SUMS. Contents that differ from the ETag are accepted if two reads return the same
        bytes, because not every ETag is an MD5.
        """
        if file.size > sha256sums.LIMIT:
            raise RequestRefused(
                f"{sha256sums.NAME} has {file.size} bytes; at most {sha256sums.LIMIT} are supported: "
                "check that it is the output of sha256sum"
            )
        before = None
        for _ in range(2):
            checker, data = Checker(file.hash, file.size), await self._read_object(file)
            checker.update(data)
            if checker.is_complete or data == before:
                return data
            before = data
        raise SourceUnreachable(f"two reads of {sha256sums.NAME} returned different contents")

    async def _read_object(self, file: RemoteFile) -> bytes:
        """Return all bytes of a small object."""
        try:
            response = await (await self._open()).get_async(self._path(file))
            data = memoryview(await response.bytes_async()).tobytes() if response.meta["size"] == file.size else b""
        except Exception as error:
            raise self._error(error, f"{file.name}: ") from error
        if len(data) != file.size:
            raise SourceUnreachable(f"{file.name} changed since the object store listed it")
        return data

    def _file(self, item: Mapping[str, Any]) -> RemoteFile:
        name = str(item["path"]).removeprefix(self._prefix).lstrip("/") or str(item["path"]).rpartition("/")[2]
        proof = SIZE_ONLY if self._sizes_only else from_etag(item["e_tag"], item["size"])
        return RemoteFile(name, int(item["size"]), proof)

    async def read(self, listing: Listing, file: RemoteFile, start: int, end: int) -> AsyncIterator[bytes]:
        """Iterate over the object's bytes from `start` up to, and excluding, `end`."""
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
        """Write an object with this name below the prefix. Raises RequestRefused if the store rejects the request, and
        SourceUnreachable if the store fails.
        """
        from obstore import put_async

        try:
            await put_async(await self._open(), f"{self._prefix}/{name}".lstrip("/"), data)
        except Exception as error:
            raise self._error(error) from error

    def report_wrong_hash(self, file: RemoteFile) -> None:
        """Do nothing, because there is no alternative source."""

    async def close(self) -> None:
        """Stop the proxy and its connections."""
        if self._proxy is not None:
            await self._proxy.close()

    async def _open(self) -> Any:
        async with self._opening:
            if self._store is None:
                self._store = self._make(await self._proxy.open() if self._proxy else "")
            return self._store

    def _error(self, error: Exception, about: str = "") -> RequestRefused | SourceUnreachable:
        if self._proxy is not None and (other := self._proxy.refused):
            return RequestRefused(
                f"the object store redirects to {other[:80]!r}, but agents contact only the host of the model's URI"
            )
        return _our_error(error, about)


def _our_error(error: Exception, about: str = "") -> RequestRefused | SourceUnreachable:
    """Return the error to raise for an error of the store's client, by the status code. The text of the store's error is
    not used, because it may contain signed URLs. `about` names the object in the message.

    The class of the client's error is not used either: a refused listing raises the same class as a broken connection.
    """
    code = _CODE.search(str(error))
    outcome = f"returned status {code[1]}" if code else f"failed ({type(error).__name__})"
    message = f"{about}the object store {outcome}"
    if code and code[1] in ("401", "403", "404"):
        return RequestRefused(
            f"{message}: check spec.storage.storageUri and the permissions of the Secret of spec.storage.key"
        )
    return SourceUnreachable(message)
