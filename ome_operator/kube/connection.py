"""Where the API server is and who we are: a kubeconfig or the pod's ServiceAccount, with tokens that are renewed.

Loading (contexts, token files, exec plugins, certificates) is kubernetes.aio's. A token that the server refuses is
loaded again once, for every session alike: our own and those that kopf watches through.
"""

import asyncio
import base64
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import kubernetes.aio.config as loading
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject

logger = logging.getLogger(__name__)

POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

Handler = Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]


class NoConnection(Exception):
    """There is no usable kubeconfig or ServiceAccount."""


class Connection:
    """One API server and one identity; sessions made here authorize themselves."""

    def __init__(self, kubeconfig: Path | None, context: str | None = None) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._configuration = Configuration()
        self._token = ""
        self.namespace = ""
        """Of the kubeconfig's context, "" where it names none."""
        self._loading = asyncio.Lock()

    @classmethod
    async def open(cls, kubeconfig: Path | None, context: str | None = None) -> "Connection":
        """Load a kubeconfig, or without one the ServiceAccount of the pod that we run in; raises NoConnection."""
        connection = cls(kubeconfig, context)
        try:
            await connection._load()
        except (loading.ConfigException, OSError) as error:
            said = str(error).rstrip(".")  # whoever prints it ends the sentence
            raise NoConnection(f"{kubeconfig or 'the ServiceAccount of this pod'}: {said}") from error
        return connection

    @property
    def server(self) -> str:
        """Base address of the API server."""
        return str(self._configuration.host).rstrip("/")

    def cluster(self) -> dict[str, Any]:
        """Where the API server is and how it is known, as a kubeconfig says it."""
        found = self._configuration
        out: dict[str, Any] = {"server": self.server}
        if not found.verify_ssl:
            out["insecure-skip-tls-verify"] = True
        elif found.ssl_ca_cert:
            out["certificate-authority-data"] = base64.b64encode(Path(found.ssl_ca_cert).read_bytes()).decode()
        if found.tls_server_name:
            out["tls-server-name"] = found.tls_server_name
        if found.proxy:
            out["proxy-url"] = found.proxy
        return out

    async def _load(self) -> None:
        fresh = Configuration()
        if self._kubeconfig is None:
            loading.load_incluster_config(fresh)
        else:
            loaded = await loading.load_kube_config(
                config_file=str(self._kubeconfig),
                context=self._context,
                client_configuration=fresh,
                persist_config=False,
            )
            self.namespace = str((loaded.current_context.get("context") or {}).get("namespace") or "")
        self._configuration = fresh
        # A token file may end in a newline, which no header may carry; and in-cluster loading spells "bearer".
        scheme, _, secret = str(fresh.api_key.get("BearerToken") or "").strip().partition(" ")
        self._token = f"{'Bearer' if scheme.lower() == 'bearer' else scheme} {secret.strip()}" if secret else ""

    async def _renew(self, refused: str) -> bool:
        """Load again unless somebody else just did; whether there is another token now."""
        async with self._loading:
            if self._token == refused:
                try:
                    await self._load()
                except Exception:  # a half-written file must not end the operator: the old token stays
                    logger.exception("cannot load the credentials again")
            return self._token != refused

    async def _authorize(self, request: aiohttp.ClientRequest, handler: Handler) -> aiohttp.ClientResponse:
        """An aiohttp client middleware."""
        token = self._token
        if token:
            request.headers["Authorization"] = token
        response = await handler(request)
        if response.status == 401 and token and await self._renew(token):
            response.release()
            request.headers["Authorization"] = self._token
            response = await handler(request)
        return response

    def session(
        self,
        *,
        limit: int,
        agent: str,
        traces: Sequence[aiohttp.TraceConfig] = (),
        middlewares: Sequence[aiohttp.ClientMiddlewareType] = (),
    ) -> aiohttp.ClientSession:
        """A session with at most `limit` connections (0: any number); `middlewares` see answers after a renewed token."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=limit, ssl=self._tls(), keepalive_timeout=60),
            middlewares=(*middlewares, self._authorize),
            trace_configs=list(traces),
            headers={"User-Agent": agent},
            proxy=self._configuration.proxy or _proxy(self.server),
            trust_env=False,  # aiohttp would read ~/.netrc in a thread for every request
            read_bufsize=2**20,  # an event of a watch is one line and may be large
        )

    def _tls(self) -> ssl.SSLContext | bool:
        """How the server is known. Without TLS, as behind `kubectl proxy`, no certificates are read: that takes 0.05 s."""
        return RESTClientObject(self._configuration).ssl_context if self.server.startswith("https:") else True


def _proxy(server: str) -> str | None:
    """The proxy that the environment names for this server."""
    url = urlsplit(server)
    return None if proxy_bypass(url.hostname or "") else getproxies().get(url.scheme)


def pod_namespace(default: str) -> str:
    """The namespace that this pod runs in."""
    try:
        return POD_NAMESPACE.read_text().strip() or default
    except OSError:
        return default
