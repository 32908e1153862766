"""Read pages of pods through the API server: a user with the right to `get pods/proxy` needs no access to the pod
network.
"""

import aiohttp

from ome_operator.kube import errors
from ome_operator.kube.connection import Connection
from ome_operator.kube.resources import path
from ome_operator.util import bounded
from ome_operator.util.json_limits import MIB, parse_untrusted

LARGEST = 4 * 2**20
"""Default of the maximum number of bytes of a page that are read. The number is limited because a pod may send any number
of bytes."""
MEMORY = 64 * MIB
"""Maximum bytes of memory while an error message, which may come from the pod, is parsed."""
PATIENCE = 5.0
"""Default timeout of a request for a page, in seconds."""


class PodPages:
    """Reads pages over one session, which the caller has to close at the end. It has at most `at_once` connections. A page
    has at most `longest` bytes, and each request has `patience` as its timeout in seconds.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        agent: str = "ome",
        at_once: int = 8,
        longest: int = LARGEST,
        patience: float = PATIENCE,
    ) -> None:
        self._server, self._longest = connection.server, longest
        self._session = connection.session(limit=at_once, agent=agent, of_pods=True)
        self._timeout = aiohttp.ClientTimeout(total=patience, sock_connect=patience)

    async def close(self) -> None:
        """End all requests."""
        await self._session.close()

    async def text(self, namespace: str, pod: str, port: int, page: str) -> str:
        """Return a page of a pod as text, and raise the same errors as `content`."""
        return (await self.content(namespace, pod, port, page)).decode(errors="replace")

    async def content(self, namespace: str, pod: str, port: int, page: str) -> bytes:
        """Return a page of a pod, such as `metrics`. Raises KubeError if the request fails, and Forbidden if the user has
        no right to read the page. If an answer has the wrong status, `code` of the error is this status; the answer may
        come from the API server or from the pod.
        """
        url = f"{self._server}{path('Pod', namespace, f'{pod}:{port}', 'proxy')}/{page}"
        try:
            async with self._session.get(url, timeout=self._timeout, allow_redirects=False) as response:
                raw = await bounded.content(response.content.iter_any(), self._longest)
                if raw is None:
                    raise errors.TooLong(f"{page} of {pod} is larger than {self._longest >> 10} KiB", response.status)
                if response.status >= 300:
                    is_json = response.content_type == "application/json"
                    status = parse_untrusted(raw, page, memory=MEMORY, extract=lambda value: value) if is_json else ""
                    raise errors.from_response(response.status, status or f"{page} of {pod}: HTTP {response.status}")
                return raw
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise errors.unanswered(f"{page} of {pod}", error) from error
