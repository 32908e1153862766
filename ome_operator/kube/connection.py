"""The address of the API server and the identity of this process, from a kubeconfig or the pod's ServiceAccount.

The official client loads both (`kubernetes.aio.config`: contexts, several files, token files, exec plugins, certificates).
Only its public names are used, so that pyproject.toml needs no upper bound for its version. The import loads the whole
client, most of which is not used, and costs each process 0.25 s of CPU time and 9 MiB of memory (docs/performance.md). This
cost is accepted because a separate loader, or a way to import only a part of the package, would be more to maintain.

When the API server refuses a token, the credentials are loaded again once for all sessions: the sessions of the client, and
the sessions through which kopf watches.
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
from kubernetes.aio import config as loading
from kubernetes.aio.client import Configuration
from yaml import YAMLError

from ome_operator.errors import OmeError

logger = logging.getLogger(__name__)

POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

Handler = Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]


class NoConnection(OmeError):
    """Error: there is no usable kubeconfig or ServiceAccount."""


class Connection:
    """A connection to one API server with one identity. Sessions that it creates add the credentials to their requests."""

    def __init__(self, kubeconfig: Path | None, context: str | None = None) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._configuration = Configuration()
        self._token = ""
        self.namespace = ""
        """Namespace of the kubeconfig's context; "" if the context names none."""
        self._loading = asyncio.Lock()

    @classmethod
    async def open(cls, kubeconfig: Path | None, context: str | None = None) -> "Connection":
        """Load a kubeconfig; if there is none, load the ServiceAccount of this process's pod. Raises NoConnection."""
        connection = cls(kubeconfig, context)
        try:
            await connection._load()
        except (loading.ConfigException, OSError) as error:
            message = str(error).rstrip(".")  # the caller that prints the message ends the sentence
            raise NoConnection(f"{kubeconfig or 'the ServiceAccount of this pod'}: {message}") from error
        except (TypeError, AttributeError, LookupError, ValueError, YAMLError) as error:
            # The client library assumes the form of the file and raises whatever an unexpected value leads to.
            if kubeconfig is None:
                raise
            raise NoConnection(f"{kubeconfig} is not a kubeconfig ({type(error).__name__})") from error
        return connection

    @property
    def server(self) -> str:
        """The base address of the API server."""
        return str(self._configuration.host).rstrip("/")

    def cluster(self) -> dict[str, Any]:
        """Return the address and TLS settings of the API server in the form of a kubeconfig's `cluster`."""
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
        self._configuration, self._token = fresh, await _authorization(fresh)

    async def _renew(self, refused: str) -> bool:
        """Load the credentials again unless another request has just done so. Return whether there is a new token."""
        async with self._loading:
            if self._token == refused:
                try:
                    await self._load()
                except Exception:  # a half-written file must not end the operator: keep the old token
                    logger.exception("reloading the credentials failed; the previous credentials stay in use")
            return self._token != refused

    async def _authorize(self, request: aiohttp.ClientRequest, handler: Handler) -> aiohttp.ClientResponse:
        """Add the credentials to a request; this is an aiohttp client middleware."""
        # The name in the certificate, if it differs from the address:
        request.server_hostname = self._configuration.tls_server_name
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
        """Return a session with at most `limit` connections (0 for any number). If the server refuses a token, the token is
        renewed and the request repeated before `middlewares` receive the answer.
        """
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=limit, ssl=self._tls(), keepalive_timeout=60),
            middlewares=(*middlewares, self._authorize),
            trace_configs=list(traces),
            headers={"User-Agent": agent},
            proxy=self._configuration.proxy or _proxy(self.server),
            trust_env=False,  # aiohttp would read ~/.netrc in a thread for every request
            read_bufsize=2**20,  # an event of a watch is a single line, which may be long
        )

    def _tls(self) -> ssl.SSLContext | bool:
        """Return the TLS context with the server's CA and the client certificate. A server without TLS, such as `kubectl
        proxy`, needs no context, and no certificates are read for it, because that takes 0.05 s.
        """
        if not self.server.startswith("https:"):
            return True
        settings = self._configuration
        context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
        if settings.cert_file:
            context.load_cert_chain(settings.cert_file, settings.key_file)
        if not settings.verify_ssl:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


async def _authorization(configuration: Configuration) -> str:
    """Return the value of the header `Authorization` from the loaded credentials; "" if there is neither a token nor a
    password.
    """
    settings = (await configuration.auth_settings()).values()
    values = (each["value"] for each in settings if each["in"] == "header" and each["key"].lower() == "authorization")
    # A token file may end in a newline, which a header must not contain, and in-cluster loading writes "bearer".
    scheme, _, secret = str(next(values, "") or "").strip().partition(" ")
    return f"{'Bearer' if scheme.lower() == 'bearer' else scheme} {secret.strip()}" if secret else ""


def _proxy(server: str) -> str | None:
    """Return the proxy that environment variables name for this server, or None."""
    url = urlsplit(server)
    return None if proxy_bypass(url.hostname or "") else getproxies().get(url.scheme)


def pod_namespace(default: str) -> str:
    """Return the namespace that this pod runs in, or `default` outside of a pod."""
    try:
        return POD_NAMESPACE.read_text().strip() or default
    except OSError:
        return default
