"""Helps tests of compile caches: a node with the agent's server, and pods that run the program of their containers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ome_operator.agent.compile_server import CompileServer
from ome_operator.agent.compile_store import CachePlace, CompileStore
from ome_operator.compile_cache import pod
from ome_operator.core.weights.compile_caches import SOCKET
from ome_operator.kube.errors import NotFound

CPU = "processor: 0\nmodel name: test\nflags: fpu avx2\n"
BUDGET = 1 << 20


class Node:
    """A node with an agent and with pods."""

    def __init__(self, folder: Path, budget: int = BUDGET) -> None:
        self.root, self.pods, self.proc = folder / "models", folder / "pods", folder / "proc"
        self.root.mkdir(exist_ok=True)
        self.proc.mkdir(exist_ok=True)
        (self.proc / "cpuinfo").write_text(CPU)
        self.folder, self.uids, self.now = folder, {"team": "uid-1", "other": "uid-2"}, 0.0
        self.asked = 0
        self.store = CompileStore([str(self.root)], budget)
        self.server = self._server()

    def _server(self) -> CompileServer:
        return CompileServer(self.store, self.uid, clock=lambda: self.now)

    async def uid(self, namespace: str) -> str:
        """Return the UID of a namespace, as the API server does."""
        self.asked += 1
        if namespace not in self.uids:
            raise NotFound(f"namespace {namespace} does not exist", 404)
        return self.uids[namespace]

    async def look(self) -> None:
        """Let the agent find the directories that exist."""
        self.now += 60
        await self.server.look()

    async def restart(self) -> None:
        """Stop the agent and start it again."""
        await self.server.close()
        self.server = self._server()
        await self.look()

    def pod(self, name: str, namespace: str = "team", digest: str = "0" * 32) -> "Pod":
        """Create a pod, and the directory that the kubelet mounts into it."""
        place = CachePlace(str(self.root), namespace, digest)
        place.path.mkdir(parents=True, exist_ok=True)
        return Pod(self, place, self.pods / name)


class Pod:
    """A pod of an engine, with its volume."""

    def __init__(self, node: Node, place: CachePlace, volume: Path) -> None:
        self.place, self.volume = place, volume
        volume.mkdir(parents=True, exist_ok=True)
        agent = node.folder / "sockets" / volume.name  # as the mount in the pod, whose path is short
        agent.parent.mkdir(exist_ok=True)
        if not agent.exists():
            agent.symlink_to(place.path)
        self.config: dict[str, Any] = {
            "folder": str(volume),
            "agent": str(agent / SOCKET),
            "health": "",
            "root": str(node.folder),
            "pause": 0.01,
        }

    def compile(self, **files: bytes) -> "Pod":
        """Write files into the engine's cache, as an engine does while it starts. `__` in a name stands for a slash."""
        for name, content in files.items():
            path = self.volume / "cache" / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return self

    @property
    def files(self) -> dict[str, bytes]:
        """The files in the engine's cache."""
        top = self.volume / "cache"
        return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}

    async def load(self, attempts: int = 3) -> str:
        """Run the program of the init container, which asks the agent up to `attempts` times, and return what the program
        prints.
        """
        return await asyncio.to_thread(pod.repeated, pod.load, self.config, attempts, 0.01)

    async def seal(self, attempts: int = 3) -> str:
        """Run the program of the sidecar from the time at which the engine serves, and return what the program prints. The
        program asks the agent up to `attempts` times.
        """
        return await asyncio.to_thread(pod.repeated, pod.seal, self.config, attempts, 0.01)

    async def ask(self, text: bytes) -> dict[str, Any]:
        """Send any bytes to the agent, and return its answer."""
        reader, writer = await asyncio.open_unix_connection(self.config["agent"])
        writer.write(text)
        writer.write_eof()
        line = await reader.readline()
        writer.close()
        answer: dict[str, Any] = json.loads(line)
        return answer


@asynccontextmanager
async def serving(folder: Path, budget: int = BUDGET) -> AsyncIterator[Node]:
    """Yield a node whose agent runs. `budget` is the number of bytes that the agent may keep in caches."""
    node = Node(folder, budget)
    try:
        yield node
    finally:
        await node.server.close()
