"""Read pages of pods through the API server: a user with the right to `get pods/proxy` needs no access to the pod
network.
"""

import aiohttp

from ome_operator.kube import errors
from ome_operator.kube.connection import Connection
from ome_operator.kube.resources import path
from ome_operator.util.bounded import content
from ome_operator.util.json_limits import MIB, parsed

LARGEST = 4 * 2**20
"""Maximum number of bytes of a page that are read, because a pod may send any number of bytes."""
MEMORY = 64 * MIB
"""Maximum bytes of memory while an error message, which may come from the pod, is parsed."""
PATIENCE = 5.0
"""Timeout of a request for a page, in seconds."""


class PodPages:
    """Reads pages over one connection, which the caller has to close at the end."""

    def __init__(self, connection: Connection) -> None:
        self._server = connection.server
        self._session = connection.session(limit=8, agent="ome")

    async def close(self) -> None:
        """End all requests."""
        await self._session.close()

    async def text(self, namespace: str, pod: str, port: int, page: str) -> str:
        """Return a page of a pod, such as `metrics`. Raises KubeError, and Forbidden if the user has no right to read it."""
        url = f"{self._server}{path('Pod', namespace, f'{pod}:{port}', 'proxy')}/{page}"
        timeout = aiohttp.ClientTimeout(total=PATIENCE, sock_connect=PATIENCE)
        try:
            async with self._session.get(url, timeout=timeout, allow_redirects=False) as response:
                raw = await content(response.content.iter_any(), LARGEST)
                if raw is None:
                    raise errors.Transient(f"{page} of {pod} is larger than {LARGEST >> 20} MiB")
                if response.status >= 300:
                    is_json = response.content_type == "application/json"
                    status = parsed(raw, page, memory=MEMORY, take=lambda value: value) if is_json else ""
                    raise errors.from_response(response.status, status or f"{page} of {pod}: HTTP {response.status}")
                return raw.decode(errors="replace")
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise errors.Transient(f"{page} of {pod}: {error or type(error).__name__}") from error
