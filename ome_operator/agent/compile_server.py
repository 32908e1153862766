"""Send stored compile caches to pods of this node, and receive new caches from these pods (docs/compile-caches.md).

The agent listens on a Unix socket in each directory that pods mount. The directory through which a pod connects determines
which caches the pod gets and may replace. A pod therefore needs no credentials, and cannot reach the caches of other pods.
Pods mount the directory read-only.
"""

import asyncio
import contextlib
import json
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ome_operator.agent.compile_store import CachePlace, CacheRefused, CompileStore
from ome_operator.agent.namespaces import MARK, mark
from ome_operator.core.weights.compile_caches import SOCKET
from ome_operator.core.weights.mount import NAMESPACES
from ome_operator.kube.errors import KubeError
from ome_operator.util.json_limits import parse_untrusted

logger = logging.getLogger(__name__)

LOOK_EVERY, CLEAN_EVERY, MARK_EVERY = 2.0, 600.0, 30.0
"""Three intervals in seconds: between two searches for new directories, between two removals of old caches, and between
two attempts to record the UID of a namespace."""
TOGETHER, OF_NAMESPACE = 8, 4
"""Maximum number of connections that are served at the same time. The first value is the limit for all pods together, the
second value the limit for the pods of one namespace.
"""
SLOT, PAUSE = 0.25, 0.2
"""Minimum seconds for which a connection counts towards these limits, and seconds for which a socket accepts no connection
after a limit was reached. Both values limit the work of the agent and of the API server if pods connect without a pause."""
SILENCE, LONGEST = 20.0, 600.0
"""Two times in seconds: the longest time for which a pod may neither send nor receive bytes, and the longest time of a
connection."""
ASK = 10.0
"""Maximum number of seconds until the API server has to return the UID of a namespace."""
LINE = 1024
"""Maximum length of a request in bytes."""
CHUNK = 1 << 20

Inode = tuple[int, int]
"""Device and inode number of a directory."""


class CompileServer:
    """The server for the compile caches of this node. It listens on a socket in each directory of caches."""

    def __init__(
        self, store: CompileStore, uid: Callable[[str], Awaitable[str]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._uid, self._clock = store, uid, clock
        self._listeners: dict[CachePlace, tuple[socket.socket, Inode]] = {}
        self._active: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads = ThreadPoolExecutor(TOGETHER, "compile-cache")
        self._marked_at: dict[str, float] = {}
        self._cleaned_at = -1e9

    async def run(self) -> None:
        """Update the listeners and remove old caches periodically, by `look`, and never return. The agent runs this method
        as a separate task, so that its other work does not wait for the disk or for the API server.
        """
        while True:
            try:
                await self.look()
            except Exception:  # the agent's other work does not depend on compile caches
                logger.exception("the agent cannot keep compile caches now, and tries again in %.0f s", MARK_EVERY)
                await asyncio.sleep(MARK_EVERY)
            await asyncio.sleep(LOOK_EVERY if self._store.limit else CLEAN_EVERY)

    async def look(self) -> None:
        """Listen in each directory of caches that exists, and stop listening in directories that no longer exist. Remove old
        caches every CLEAN_EVERY seconds. Errors of the disk are logged.
        """
        now = self._clock()
        try:
            if now - self._cleaned_at >= CLEAN_EVERY:
                self._cleaned_at = now
                await asyncio.to_thread(self._store.clean)
            places = await asyncio.to_thread(self._found)
            await self._mark(places)
        except OSError as error:
            logger.warning("cannot read the compile caches of this node: %s", error)
            return
        for place, (_, inode) in list(self._listeners.items()):
            if places.get(place) != inode:
                self._end(place)
        for place in places.keys() - self._listeners.keys():
            try:
                self._begin(place)
            except OSError as error:
                logger.warning("cannot keep compile caches in %s: %s", place.path, error)

    def _found(self) -> dict[CachePlace, Inode]:
        """Return the directories of caches that exist, with their inodes. If a namespace was deleted and created again, its
        directory has another inode than before.
        """
        found = {place: _inode(place) for place in (self._store.places() if self._store.limit else ())}
        return {place: inode for place, inode in found.items() if inode is not None}

    async def _mark(self, places: Iterable[CachePlace]) -> None:
        """Record the UIDs of the namespaces that have a directory of compile caches and no recorded UID."""
        for root, namespace in {(place.root, place.namespace) for place in places}:
            unmarked = not (Path(root) / NAMESPACES / namespace / MARK).exists()
            if unmarked and self._clock() - self._marked_at.get(namespace, -1e9) >= MARK_EVERY:
                self._marked_at[namespace] = self._clock()
                try:
                    uid = await asyncio.wait_for(self._uid(namespace), ASK)
                except TimeoutError:
                    return  # requests for the other namespaces would take long, too, and the agent waits
                except KubeError as error:
                    logger.info("namespace %s: %s", namespace, error)
                    continue
                try:
                    await asyncio.to_thread(mark, namespace, uid, {Path(root)})
                except OSError as error:
                    logger.warning("cannot record the UID of namespace %s: %s", namespace, error)

    def _begin(self, place: CachePlace) -> None:
        listener, inode = _listener(place)
        self._listeners[place] = listener, inode
        asyncio.get_running_loop().add_reader(listener, self._accept, place, listener, inode)

    def _end(self, place: CachePlace) -> None:
        listener, _ = self._listeners.pop(place)
        asyncio.get_running_loop().remove_reader(listener)
        listener.close()

    def _resume(self, place: CachePlace, listener: socket.socket, inode: Inode) -> None:
        if self._listeners.get(place) == (listener, inode):
            asyncio.get_running_loop().add_reader(listener, self._accept, place, listener, inode)

    def _accept(self, place: CachePlace, listener: socket.socket, inode: Inode) -> None:
        loop = asyncio.get_running_loop()
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        if self._active.total() >= TOGETHER or self._active[place.namespace] >= OF_NAMESPACE:
            connection.close()  # not an error for the pod, which sends its request again
            loop.remove_reader(listener)
            loop.call_later(PAUSE, self._resume, place, listener, inode)
            return
        self._active[place.namespace] += 1
        task = loop.create_task(self._answer(place, inode, connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, place: CachePlace, inode: Inode, connection: socket.socket) -> None:
        began = time.monotonic()
        try:
            with connection:
                reason = await self._refusal(place, inode)
                await asyncio.get_running_loop().run_in_executor(self._threads, self._serve, place, connection, reason)
        except Exception:
            logger.exception("a request for a compile cache in %s failed", place.path)
        finally:
            left = max(0.0, began + SLOT - time.monotonic())
            asyncio.get_running_loop().call_later(left, self._release, place.namespace)

    def _release(self, namespace: str) -> None:
        self._active[namespace] -= 1
        if not self._active[namespace]:
            del self._active[namespace]

    async def _refusal(self, place: CachePlace, inode: Inode) -> str:
        """Return why pods get no caches through this directory, or "" if they get them. `inode` is the inode of the
        directory in which the agent listens. Pods get no caches if their namespace was deleted and created again, or if this
        cannot be verified: the new namespace may have another owner, and code must not pass from one owner to another.
        """
        try:
            uid = await asyncio.wait_for(self._uid(place.namespace), ASK)
            if await asyncio.to_thread(_inode, place) != inode:
                return "the namespace was created again"
            known = await asyncio.to_thread((place.path.parents[1] / MARK).read_text)
        except (KubeError, OSError, TimeoutError) as error:
            logger.info("compile caches of namespace %s: %s", place.namespace, error)
            return "the agent could not verify yet that the namespace is the same as before"
        return "" if uid and known.strip() == uid else "the namespace was created again"

    def _serve(self, place: CachePlace, connection: socket.socket, reason: str) -> None:
        """Read the request of a connection, and send the answer. If `reason` is not "", the answer is that there is no
        cache, and contains `reason`.
        """
        connection.settimeout(SILENCE)
        ends = self._clock() + LONGEST
        try:
            request = self._request(connection, ends)
            if reason:
                raise CacheRefused(reason)
            hardware = str(request.get("hardware"))
            if request.get("op") == "load":
                self._load(place, hardware, connection, ends)
            elif request.get("op") == "served":
                self._receive(place, hardware, connection, ends)
            else:
                raise CacheRefused("the agent does not know this request")
        except (CacheRefused, OSError) as error:
            if not isinstance(error, CacheRefused):
                logger.info("compile cache in %s: %s", place.path, error)
            with contextlib.suppress(OSError):
                _say(connection, {"none": str(error)})

    def _request(self, connection: socket.socket, ends: float) -> dict[str, Any]:
        """Read the request of a pod, which is a JSON object on one line. `ends` is the time, according to the clock of this
        server, until which the connection may last. Raises CacheRefused for an invalid or late request, and OSError.
        """
        line = b""
        while not line.endswith(b"\n"):
            self._limit(ends)
            data = connection.recv(LINE)
            line += data
            if not data or len(line) > LINE:
                raise CacheRefused("the request is not a line")
        try:
            return parse_untrusted(line, "the request", memory=1 << 20, extract=dict)
        except (ValueError, TypeError) as error:
            raise CacheRefused("the request is not a JSON object") from error

    def _load(self, place: CachePlace, hardware: str, connection: socket.socket, ends: float) -> None:
        with self._store.load(place, hardware) as (file, size):
            _say(connection, {"size": size})
            while data := file.read(CHUNK):
                connection.sendall(data)
                self._limit(ends)

    def _receive(self, place: CachePlace, hardware: str, connection: socket.socket, ends: float) -> None:
        if not self._store.served(place, hardware):
            _say(connection, {"kept": True})
            return
        _say(connection, {"send": self._store.limit})

        def read(count: int) -> bytes:
            self._limit(ends)
            return connection.recv(count)

        size = self._store.receive(place, hardware, read)
        logger.info("sealed a compile cache with %d bytes in %s", size, place.path)
        _say(connection, {"sealed": size})

    def _limit(self, ends: float) -> None:
        if self._clock() > ends:
            raise CacheRefused(f"it took more than {LONGEST:.0f} s")

    async def close(self) -> None:
        """Stop listening. The sockets stay in their directories, so that pods know that an agent will answer again."""
        for place in list(self._listeners):
            self._end(place)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)


def of(roots: tuple[str, ...], gigabytes: float, uid: Callable[[str], Awaitable[str]]) -> CompileServer:
    """Return the server for the compile caches below the directories `roots`. `gigabytes` is the maximum size of all caches
    together. If it is 0, the server sends no caches to pods and removes the caches. `uid` asks the API server for the UID of
    a namespace.
    """
    return CompileServer(CompileStore(roots, int(gigabytes * 1e9)), uid)


def _inode(place: CachePlace) -> Inode | None:
    try:
        status = place.path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _listener(place: CachePlace) -> tuple[socket.socket, Inode]:
    """Create a socket that listens in a directory, in place of an earlier socket there. Return the socket and the inode of
    the directory. The path of a socket has at most 107 bytes, so the socket is bound to a path that contains the descriptor
    of the directory instead of its name.
    """
    folder = os.open(place.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    fresh = f".{SOCKET}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=folder)
        listener.bind(f"/proc/self/fd/{folder}/{fresh}")
        os.chmod(fresh, 0o666, dir_fd=folder)  # noqa: S103 - engines have other users than the agent
        listener.setblocking(False)
        listener.listen(64)
        os.rename(fresh, SOCKET, src_dir_fd=folder, dst_dir_fd=folder)
        status = os.fstat(folder)
    except OSError:
        listener.close()
        raise
    finally:
        os.close(folder)
    return listener, (status.st_dev, status.st_ino)


def _say(connection: socket.socket, answer: dict[str, Any]) -> None:
    connection.sendall(json.dumps(answer).encode() + b"\n")
