"""A small Kubernetes client: objects are plain dicts, writes are server-side applies of one field manager, errors form a
tree (`errors.py`).
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple

import aiohttp

from ome_operator import keys
from ome_operator.kube import errors
from ome_operator.kube.body import encoded
from ome_operator.kube.connection import Connection
from ome_operator.kube.resources import RESOURCES, path, resource_name
from ome_operator.util import bounded
from ome_operator.util.json_limits import decode_to_depth

Manifest = dict[str, Any]
Count = Callable[[str, str, int, float], None]
"""Function that is called after each request with the verb, the kind, the status code (0 if no response came), and the
seconds that the request took."""

NEVER = "1"
"""A resourceVersion that no live object has: versions are etcd revisions, and the first write is revision 2. With this
version, a server-side apply creates an absent object in a single atomic request. The API server refuses it with 409 if
the object exists."""

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
METADATA_PAGE = 200
"""Number of objects per page of a metadata list. The metadata of a node takes some 25 kB, and a page is decoded as a
whole."""
SOME, LONGEST = 500, 8 * 2**20
"""Maximum number of objects, and of bytes, that `list_some` reads. 500 Events of controllers have less than 1 MiB."""
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

METHODS = {"get": "GET", "list": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
"""Kubernetes verb -> HTTP method."""

NOT_SENT = "the request was not sent, because another operator may be the leader by now"
ONLY_OBSERVED = "the request was not sent, because this operator is in observe mode"

_WARNING = re.compile(r'\b299 \S++ "((?:[^"\\]++|\\.)*+)"')


class ApplyResult(NamedTuple):
    """The API server's answer to an apply."""

    body: Manifest
    warnings: tuple[str, ...]


class Client:
    """A client of the API server with one identity. It limits the number of connections, and each request has a timeout.

    `may_write` is called right before each write; if it returns False, the write is not sent, and Transient is raised. With
    `only_statuses`, every write is refused except writes of statuses.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        connections: int = 32,
        timeout: float = 30.0,
        count: Count | None = None,
        manager: str = keys.MANAGER,
        may_write: Callable[[], bool] | None = None,
        only_statuses: bool = False,
    ) -> None:
        self.connection, self._manager, self._only_statuses = connection, manager, only_statuses
        traces = [_fence(may_write)] if may_write is not None else []
        self._session = connection.session(limit=connections, agent=manager, traces=traces)
        # The semaphore, not the pool, makes requests wait, so that waiting is not part of a request's timeout.
        self._slots = asyncio.Semaphore(connections)
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=5.0, sock_read=timeout)
        self._count, self._may_write = count, may_write

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def get(self, kind: str, namespace: str, name: str) -> Manifest:
        """Return an object by a consistent read of the API server, not from a cache."""
        body, _ = await self._send("get", kind, path(kind, namespace, name), name=name)
        return body

    async def get_metadata(self, kind: str, namespace: str, name: str) -> Manifest:
        """Return the `metadata` of the live object, by a consistent read. The API server sends no
        other data of the object.
        """
        where, asked = path(kind, namespace, name), (RESOURCES[kind].plural, name)
        answer = await self._exchange("get", kind, where, None, None, {"Accept": METADATA})
        metadata: Manifest = _decoded(f"GET {where}", *answer, asked)["metadata"]
        return metadata

    async def list_objects(
        self, kind: str, namespace: str = "", *, label_selector: str = "", field_selector: str = "", limit: int = 0
    ) -> list[Manifest]:
        """Return live objects by a consistent read: all objects, or at most `limit` objects if a limit is given. The
        namespace "" stands for all namespaces, and an empty selector selects all objects.
        """
        found: list[Manifest] = []
        async for items in self._pages(kind, namespace, label_selector, field_selector, limit or 500, "application/json"):
            found += items
            if limit:
                break
        return found

    async def list_some(
        self, kind: str, namespace: str, *, label_selector: str = "", field_selector: str = ""
    ) -> list[Manifest]:
        """Return at most `SOME` live objects of a kind that tenants may create, in the order of their names. Raises
        KubeError if they are longer than `LONGEST` bytes together. An empty selector selects all objects.
        """
        query, where = _list_query(SOME, label_selector, field_selector), path(kind, namespace)
        headers = {"Accept": "application/json"}
        code, raw, received = await self._exchange("list", kind, where, query, None, headers, longest=LONGEST)
        items: list[Manifest] = _decoded(f"GET {where}", code, raw, received).get("items") or []
        return items

    async def list_metadata(self, kind: str, namespace: str = "", *, label_selector: str = "") -> list[Manifest]:
        """Return the `metadata` of all live objects, by a consistent read. The namespace "" stands for all namespaces, and
        an empty selector selects all objects.
        """
        pages = self._pages(kind, namespace, label_selector, "", METADATA_PAGE, METADATA_LIST)
        return [item["metadata"] async for items in pages for item in items]

    async def list_uids(self, kind: str, namespace: str = "", *, label_selector: str = "") -> set[str]:
        """Return the UIDs of all live objects, by a consistent read. No other data of the objects is kept in memory. The
        namespace "" stands for all namespaces, and an empty selector selects all objects.
        """
        pages = self._pages(kind, namespace, label_selector, "", METADATA_PAGE, METADATA_LIST)
        return {item["metadata"]["uid"] async for items in pages for item in items}

    async def _pages(
        self, kind: str, namespace: str, label_selector: str, field_selector: str, size: int, accept: str
    ) -> AsyncIterator[list[Manifest]]:
        """Yield the items of each page of a list. A page has at most `size` items, and `accept` is the value of the header
        Accept.
        """
        query, where = _list_query(size, label_selector, field_selector), path(kind, namespace)
        headers = {"Accept": accept}
        while True:
            try:
                answer = await self._exchange("list", kind, where, query, None, headers, bounded.PAGE_BYTES)
            except errors.TooLong:
                if size == 1:
                    raise
                size = bounded.smaller_page(size)
                query["limit"] = str(size)
                continue
            page = _decoded(f"GET {where}", *answer)
            query["continue"] = (page.get("metadata") or {}).get("continue") or ""
            yield page.get("items") or []
            if not query["continue"]:
                return

    async def apply(self, manifest: Manifest, uid: str = "", *, subresource: str = "", dry_run: bool = False) -> ApplyResult:
        """Apply a complete manifest by server-side apply.

        Without `uid` the object is only created, and Conflict is raised if the object exists. With `uid` only the object
        with this UID is changed; otherwise Conflict is raised. An apply of a status or a dry run may omit the UID.
        """
        kind, metadata = resource_name(manifest["apiVersion"], manifest["kind"]), manifest["metadata"]
        if uid:
            manifest = {**manifest, "metadata": {**metadata, "uid": uid}}
        elif not subresource and not dry_run:
            manifest = {**manifest, "metadata": {**metadata, "resourceVersion": NEVER}}
        # The server refuses any apply with unknown fields; "Ignore" only saves it a second parsing.
        query = {"fieldManager": self._manager, "force": "true", "fieldValidation": "Ignore"}
        if dry_run:
            query["dryRun"] = "All"
        where = path(kind, metadata.get("namespace", ""), metadata["name"], subresource)
        body, headers = await self._send(
            "patch", kind, where, name=metadata["name"], query=query, body=manifest, content=APPLY
        )
        return ApplyResult(body, warnings(headers))

    async def create(self, manifest: Manifest, manager: str = "", *, dry_run: bool = False) -> Manifest:
        """Create a new object by POST. Raises AlreadyExists if the name is taken. In a dry run nothing is stored. `manager`
        is the field manager; "" stands for the field manager of the client.
        """
        kind, namespace = manifest["kind"], manifest["metadata"].get("namespace", "")
        query = {"fieldManager": manager or self._manager}
        if dry_run:
            query["dryRun"] = "All"
        body, _ = await self._send("create", kind, path(kind, namespace), query=query, body=manifest)
        return body

    async def update(self, manifest: Manifest, manager: str = keys.MANAGER) -> Manifest:
        """Replace an object by PUT. The resourceVersion in the manifest makes the request a compare-and-swap."""
        kind, metadata = manifest["kind"], manifest["metadata"]
        where, query = path(kind, metadata.get("namespace", ""), metadata["name"]), {"fieldManager": manager}
        body, _ = await self._send("update", kind, where, name=metadata["name"], query=query, body=manifest)
        return body

    async def patch_merge(
        self, kind: str, namespace: str, name: str, uid: str, patch: Manifest, manager: str = ""
    ) -> Manifest:
        """Apply a JSON merge patch to the object with this UID, and to no other object of the same name. `manager` is the
        field manager; "" stands for the field manager of the client.
        """
        body = {**patch, "metadata": {**patch.get("metadata", {}), "uid": uid}}
        where, query = path(kind, namespace, name), {"fieldManager": manager or self._manager}
        answer, _ = await self._send("patch", kind, where, name=name, query=query, body=body, content=MERGE)
        return answer

    async def delete(self, kind: str, namespace: str, name: str, uid: str, grace: int | None = None) -> Manifest:
        """Delete the object with this UID, and no other object of the same name; its dependents are deleted in the
        background. Return the object while it is terminating, or a `Status` if it is gone already. `grace` is the grace
        period in seconds; None for the value in the object.
        """
        options: Manifest = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        body, _ = await self._send("delete", kind, path(kind, namespace, name), name=name, body=options)
        return body

    async def request_token(self, namespace: str, account: str, seconds: int) -> Manifest:
        """Return the status of a TokenRequest, which contains a token of a ServiceAccount and its expiry. `seconds` is the
        requested lifetime of the token.
        """
        where = path("ServiceAccount", namespace, account, "token")
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": seconds}}
        answer, _ = await self._send("create", "ServiceAccount", where, name=account, body=body)
        return dict(answer.get("status") or {})

    async def authenticated_user(self) -> str:
        """Return the user name that the API server has authenticated this client as."""
        answer = await self.create({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {}})
        return str(((answer.get("status") or {}).get("userInfo") or {}).get("username") or "")

    async def served_plurals(self, api_version: str) -> frozenset[str]:
        """Return the plural names of the kinds that the API server serves now in a group and version."""
        try:
            body, _ = await self._send("get", "APIResourceList", f"/apis/{api_version}")
        except errors.NotServed:
            return frozenset()
        return frozenset(item["name"] for item in body.get("resources") or ())

    async def _send(
        self,
        verb: str,
        kind: str,
        where: str,
        *,
        name: str = "",
        query: Mapping[str, str] | None = None,
        body: Manifest | None = None,
        content: str = "application/json",
    ) -> tuple[Manifest, Any]:
        """Send a request, and return the answer and its headers. `name` is the name of the requested object, "" if the
        request is not for a single object.
        """
        method = METHODS[verb]
        if self._only_statuses and method != "GET" and not where.endswith("/status"):
            raise errors.Forbidden(f"{method} {where}: {ONLY_OBSERVED}")
        data = None if body is None else encoded(body)
        headers = {"Accept": "application/json", **({} if data is None else {"Content-Type": content})}
        code, raw, received = await self._exchange(verb, kind, where, query, data, headers)
        asked = (RESOURCES[kind].plural, name) if name else ("", "")
        return _decoded(f"{method} {where}", code, raw, received, asked), received

    async def _exchange(
        self,
        verb: str,
        kind: str,
        where: str,
        query: Mapping[str, str] | None,
        data: bytes | None,
        headers: Mapping[str, str],
        longest: int | None = None,
    ) -> tuple[int, bytes, Any]:
        """Send a request, count it, and return the status code, body and headers of the answer, whatever the status code
        is. Raises Transient if there is no answer, and TooLong if it is longer than `longest` bytes.
        """
        method, url = METHODS[verb], self.connection.server + where
        async with self._slots:
            if method != "GET" and self._may_write is not None and not self._may_write():
                raise errors.Transient(f"{method} {where}: {NOT_SENT}")
            started, code = time.monotonic(), 0
            try:
                async with self._session.request(
                    method, url, params=query, data=data, headers=headers, timeout=self._timeout
                ) as response:
                    code = response.status
                    if longest is None:
                        return code, await response.read(), response.headers
                    if (read := await bounded.content(response.content.iter_any(), longest)) is None:
                        raise errors.TooLong(f"{method} {where}: the answer is longer than {longest // 2**20} MiB")
                    return code, read, response.headers
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                if isinstance(error.__cause__, errors.Transient):
                    raise error.__cause__ from None  # `_fence` has raised the error
                raise errors.unanswered(f"{method} {where}", error, code) from error
            finally:
                if self._count is not None:
                    self._count(verb, kind, code, time.monotonic() - started)


def _fence(may_write: Callable[[], bool]) -> aiohttp.TraceConfig:
    """Return a trace configuration that calls `may_write` once more when a write has got its connection, because the write
    may have waited long for the connection, or the process may have been suspended during the wait.

    Every write has a body, and the check runs right before the body is sent. aiohttp sends the headers together with the
    body, in a separate task that the event loop may run later.
    """

    async def check(_: aiohttp.ClientSession, __: object, sending: aiohttp.TraceRequestChunkSentParams) -> None:
        if not may_write():  # not an OSError: aiohttp would send the request again
            raise errors.Transient(f"{sending.method} {sending.url.path}: {NOT_SENT}")

    trace = aiohttp.TraceConfig()
    trace.on_request_chunk_sent.append(check)
    return trace


def warnings(headers: Any) -> tuple[str, ...]:
    """Return the texts of `Warning:` headers."""
    found = []
    for value in headers.getall("Warning", ()):
        found += [text.replace('\\"', '"').replace("\\\\", "\\") for text in _WARNING.findall(value)]
    return tuple(dict.fromkeys(found))


def _list_query(limit: int, label_selector: str, field_selector: str) -> dict[str, str]:
    """Return the query parameters of a request that lists at most `limit` objects. An empty selector ("") selects all
    objects.
    """
    selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {"limit": str(limit), **{name: selector for name, selector in selectors.items() if selector}}


def _decoded(request: str, code: int, raw: bytes, headers: Any, asked: tuple[str, str] = ("", "")) -> Manifest:
    """Return the body of an answer. Raises KubeError for an answer other than success. `asked` is the plural and the name of
    the requested object. `code` is the HTTP status.
    """
    try:
        answer = decode_to_depth(raw) if raw else {}
    except ValueError:
        answer = f"{request}: {raw.decode(errors='replace').strip()}"
    if code >= 300 or not isinstance(answer, dict):
        raise errors.from_response(code, answer, headers.get("Retry-After", ""), asked)
    return answer
