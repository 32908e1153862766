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

from ome_operator.errors import OmeError
from ome_operator.kube import kubeconfig as files

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
        self._context_of_tls: ssl.SSLContext | bool = True
        self.namespace = ""
        """Namespace of the kubeconfig's context; "" if the context names none."""
        self._loading = asyncio.Lock()

    @classmethod
    async def open(cls, kubeconfig: Path | None, context: str | None = None) -> "Connection":
        """Load a kubeconfig; if there is none, load the ServiceAccount of this process's pod. Raises NoConnection."""
        connection = cls(kubeconfig, context)
        try:
            plugin = files.check(kubeconfig, context) if kubeconfig is not None else ""
            await connection._load()
        except files.KubeconfigMistake as mistake:
            raise NoConnection(str(mistake)) from mistake
        except (loading.ConfigException, OSError) as error:
            message = str(error).rstrip(".")  # the caller that prints the message ends the sentence
            raise NoConnection(f"{kubeconfig or 'the ServiceAccount of this pod'}: {message}") from error
        except Exception as error:
            # What `check` does not know (auth-provider) leads to whatever the client library raises.
            if kubeconfig is None or isinstance(error, NoConnection):
                raise
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise NoConnection(f"{kubeconfig}: the credentials of its user cannot be loaded ({why})") from error
        if plugin and not connection._token and not connection._configuration.cert_file:
            raise NoConnection(f"{plugin}: the plugin has returned no credentials: run its command to see why")
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
        token, tls = await _authorization(fresh), self._tls(fresh)
        self._configuration, self._token, self._context_of_tls = fresh, token, tls

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
            connector=aiohttp.TCPConnector(limit=limit, ssl=self._context_of_tls, keepalive_timeout=60),
            middlewares=(*middlewares, self._authorize),
            trace_configs=list(traces),
            headers={"User-Agent": agent},
            proxy=self._configuration.proxy or _proxy(self.server),
            trust_env=False,  # aiohttp would read ~/.netrc in a thread for every request
            read_bufsize=2**20,  # an event of a watch is a single line, which may be long
        )

    def _tls(self, settings: Configuration) -> ssl.SSLContext | bool:
        """Return the TLS context with the server's CA and the client certificate. A server without TLS, such as `kubectl
        proxy`, needs no context, and no certificates are read for it, because that takes 0.05 s. Raises NoConnection.
        """
        if not str(settings.host).startswith("https:"):
            return True
        of = self._kubeconfig or "the ServiceAccount of this pod"
        try:
            context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
        except ssl.SSLError as error:
            field = "certificate-authority of the cluster" if self._kubeconfig else f"the file {settings.ssl_ca_cert}"
            raise NoConnection(f"{of}: {field} contains no valid certificate: write the CA of the API server") from error
        if settings.cert_file:
            try:
                context.load_cert_chain(settings.cert_file, settings.key_file, password="")
            except ssl.SSLError as error:
                fields = "client-certificate and client-key of the user"
                raise NoConnection(
                    f"{of}: {fields} cannot be used ({_reason(error)}): write a certificate and its own key, without a "
                    "password"
                ) from error
        if not settings.verify_ssl:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


def _reason(error: ssl.SSLError) -> str:
    """Return the reason of an error in words."""
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the key does not belong to the certificate"
    return (
        "they are not valid PEM, or the key is encrypted"
        if error.reason in (None, "PEM_LIB", "BAD_DECRYPT")
        else error.reason
    )


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
