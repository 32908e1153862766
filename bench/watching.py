"""Records when each pod and each service became Ready, as seen by watches of this process."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from bench.api import Api, Manifest
from bench.scenarios import NAMESPACE
from ome_operator import keys

Moments = dict[str, float]


class Late(Exception):
    """Error: something that the benchmark waited for did not happen in time."""


class Watching:
    """Watches pods and services. Times are monotonic seconds."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.pods: set[str] = set()
        """Names of the existing pods."""
        self.pods_ready: dict[str, Moments] = {}
        """Service → pod → time at which it was first seen Ready."""
        self.services_ready: Moments = {}
        """Service → time at which its conditions Ready and Scaled were first seen True together."""
        self._open: set[str] = set()
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for kind, see in (("Pod", self._pod), ("InferenceService", self._service)):
            self._tasks.append(asyncio.create_task(self._watch(kind, see), name=f"watch {kind}"))
        try:
            await self.wait_until("watches open", lambda: len(self._open) == len(self._tasks), 30.0)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._close()

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError, Exception):
                await task

    async def wait_until(self, description: str, done: Callable[[], bool], within_s: float) -> float:
        """Wait until `done` returns True, and return the time at which that was seen. Raises Late, with the description
        `description`, after `within_s` seconds, or if a watch has ended.
        """
        deadline = time.monotonic() + within_s
        while not done():
            for task in self._tasks:
                if task.done():
                    raise Late(f"{task.get_name()} ended: {task.exception()!r}")
            if time.monotonic() > deadline:
                raise Late(f"{description}: not within {within_s:.0f} s ({self.progress()})")
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._changed.wait()
        return time.monotonic()

    def progress(self) -> str:
        """Return the current counts as text."""
        return f"{self.ready_pods()} pods and {len(self.services_ready)} services ready, {len(self.pods)} pods exist"

    def ready_pods(self) -> int:
        """Return the number of pods that have been Ready."""
        return sum(len(pods) for pods in self.pods_ready.values())

    def last_pod(self) -> float:
        """Return the time at which the last pod became Ready."""
        return max(at for pods in self.pods_ready.values() for at in pods.values())

    def lags(self) -> list[float]:
        """Return for each service the seconds from its own last pod to its condition Ready."""
        return [at - max(self.pods_ready[name].values()) for name, at in self.services_ready.items()]

    async def _watch(self, kind: str, see: Callable[[str, Manifest, float], None]) -> None:
        async for event in self._api.watch(kind, NAMESPACE):
            if event["type"] == "LISTED":
                self._open.add(kind)
            else:
                see(event["type"], event["object"], time.monotonic())
            self._changed.set()

    def _pod(self, change: str, pod: Manifest, now: float) -> None:
        name = pod["metadata"]["name"]
        if change == "DELETED":
            self.pods.discard(name)
            return
        self.pods.add(name)
        if is_ready(pod):
            service = pod["metadata"]["labels"][keys.SERVICE]
            self.pods_ready.setdefault(service, {}).setdefault(name, now)

    def _service(self, change: str, service: Manifest, now: float) -> None:
        if change != "DELETED" and is_ready(service) and is_ready(service, "Scaled"):
            self.services_ready.setdefault(service["metadata"]["name"], now)


def is_ready(body: Manifest, type_: str = "Ready") -> bool:
    """Return whether the condition Ready, or the condition of another type, is True."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    return any(item["type"] == type_ and item["status"] == "True" for item in conditions)
