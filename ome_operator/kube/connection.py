"""The address of the API server and the identity of this process, from a kubeconfig or the pod's ServiceAccount.

The official client loads both (`kubernetes.aio.config`: contexts, several files, token files, exec plugins, certificates).
Only its public names are used, so that pyproject.toml needs no upper bound for its version. The import loads the whole
client, most of which is not used, and costs each process 0.25 s of CPU time and 9 MiB of memory (docs/performance.md). This
cost is accepted because a separate loader, or a way to import only a part of the package, would be more to maintain.

When the API server refuses the credentials, or its certificate cannot be verified, credentials and certificates are loaded
again once for all sessions: the sessions of the client, and the sessions through which kopf watches. So a token, a client
certificate and a CA may be renewed while the process runs.
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
        self._certificates: tuple[bytes, ...] = ()
        """The contents of the files from which the TLS context was made."""
        self.namespace = ""
        """Namespace of the kubeconfig's context; "" if the context names none."""
        self._loading = asyncio.Lock()

    @classmethod
    async def open(cls, kubeconfig: Path | None, context: str | None = None) -> "Connection":
        """Load a kubeconfig; if there is none, load the ServiceAccount of this process's pod. Raises NoConnection if
        neither is usable.
        """
        connection = cls(kubeconfig, context)
        try:
            plugin = await connection._load()
        except files.KubeconfigMistake as mistake:
            raise NoConnection(str(mistake)) from mistake
        except (loading.ConfigException, OSError) as error:
            message = str(error).rstrip(".")  # the caller that prints the message adds the full stop
            raise NoConnection(f"{kubeconfig or 'the ServiceAccount of this pod'}: {message}") from error
        except Exception as error:
            # The module kubeconfig does not check an auth-provider, so any exception of the client library may be
            # raised here.
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

    async def _load(self) -> str:
        """Load the credentials. Return the file and the field that declare the plugin for credentials; "" if the
        credentials come from no plugin.
        """
        fresh, plugin = Configuration(), ""
        if self._kubeconfig is None:
            loading.load_incluster_config(fresh)
        else:
            content, self.namespace, plugin = files.read_kubeconfig(self._kubeconfig, self._context)
            await loading.load_kube_config_from_dict(content, client_configuration=fresh)
        token, certificates = await _authorization(fresh), _certificates(fresh)
        # With an equal context, open connections stay in use.
        same = self._configuration.host == fresh.host and self._certificates == certificates
        tls = self._context_of_tls if same else self._tls(fresh)
        self._configuration, self._token, self._context_of_tls, self._certificates = fresh, token, tls, certificates
        return plugin

    @property
    def _credentials(self) -> tuple[str, ssl.SSLContext | bool]:
        return self._token, self._context_of_tls

    async def _renew(self, refused: tuple[str, ssl.SSLContext | bool]) -> bool:
        """Load the credentials again, unless another request has just loaded them. `refused` are the credentials that the
        API server has refused. Return whether other credentials are loaded now.
        """
        async with self._loading:
            if self._credentials == refused:
                try:
                    await self._load()
                except Exception:  # a half-written file must not end the operator: keep the old credentials
                    logger.exception("reloading the credentials failed; the previous credentials stay in use")
            return self._credentials != refused

    async def _authorize(self, request: aiohttp.ClientRequest, handler: Handler) -> aiohttp.ClientResponse:
        """Add the credentials to a request; this is an aiohttp client middleware."""
        used = self._identify(request)
        try:
            response = await handler(request)
        except aiohttp.ClientSSLError:  # the server has a certificate of another CA, or refuses the client's certificate
            if not await self._renew(used):
                raise
            self._identify(request)
            return await handler(request)
        known = self._token or self._configuration.cert_file
        if response.status == 401 and known and await self._renew(used):
            response.release()
            self._identify(request)
            response = await handler(request)
        return response

    async def _authorize_once(self, request: aiohttp.ClientRequest, handler: Handler) -> aiohttp.ClientResponse:
        """Add the credentials to a request that a pod answers; this is an aiohttp client middleware. Other sessions renew
        the credentials, which all sessions share.
        """
        self._identify(request)
        return await handler(request)

    def _identify(self, request: aiohttp.ClientRequest) -> tuple[str, ssl.SSLContext | bool]:
        """Add the present credentials to a request, and return them."""
        # The name in the certificate, if it differs from the address:
        request.server_hostname = self._configuration.tls_server_name
        if self._token:
            request.headers["Authorization"] = self._token
        # aiohttp has no public way to change the context of a session. A connection is only reused with its own context.
        request._ssl = self._context_of_tls
        return self._credentials

    def session(
        self,
        *,
        limit: int,
        agent: str,
        traces: Sequence[aiohttp.TraceConfig] = (),
        middlewares: Sequence[aiohttp.ClientMiddlewareType] = (),
        of_pods: bool = False,
    ) -> aiohttp.ClientSession:
        """Return a session with at most `limit` connections (0 for any number). If the server refuses a token, the token is
        renewed and the request repeated before `middlewares` receive the answer.

        `of_pods` is for requests that the server passes on to pods, which are not trusted: a pod's status 401 renews no
        token, its cookies are not stored, and its responses are not decompressed.
        """
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=limit, ssl=self._context_of_tls, keepalive_timeout=60),
            middlewares=(*middlewares, self._authorize_once if of_pods else self._authorize),
            trace_configs=list(traces),
            headers={"User-Agent": agent, **({"Accept-Encoding": "identity"} if of_pods else {})},
            auto_decompress=not of_pods,
            cookie_jar=aiohttp.DummyCookieJar() if of_pods else None,
            proxy=self._configuration.proxy or _proxy(self.server),
            trust_env=False,  # aiohttp would read ~/.netrc in a thread for every request
            read_bufsize=2**20,  # an event of a watch is a single line, which may be long
        )

    def _tls(self, settings: Configuration) -> ssl.SSLContext | bool:
        """Return the TLS context with the server's CA and the client certificate. For a server without TLS, such as
        `kubectl proxy`, no certificates are read, because that takes 0.05 s. Raises NoConnection if a certificate cannot
        be used.
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


def _certificates(settings: Configuration) -> tuple[bytes, ...]:
    """Return the contents of the files with the CA, the client certificate and its key, and whether the server is verified;
    () for a server without TLS.
    """
    if not str(settings.host).startswith("https:"):
        return ()
    names = (settings.ssl_ca_cert, settings.cert_file, settings.key_file)
    return (*(Path(name).read_bytes() if name else b"" for name in names), str(settings.verify_ssl).encode())


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
    """Return the URL of the proxy that environment variables name for the server `server`; None if they name no proxy for
    it.
    """
    url = urlsplit(server)
    return None if proxy_bypass(url.hostname or "") else getproxies().get(url.scheme)


def pod_namespace(default: str) -> str:
    """Return the namespace of the pod in which this process runs; `default` if it does not run in a pod."""
    try:
        return POD_NAMESPACE.read_text().strip() or default
    except OSError:
        return default
