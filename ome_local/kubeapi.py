"""A minimal Kubernetes client that uses only the standard library.

A larger library is not suitable: the token keeper runs as long as the cluster and must need little memory, and `up` must not
wait until a large library is loaded.
"""

import base64
import http.client
import json
import ssl
import tempfile
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from ome_operator.errors import OmeError


class ApiError(OmeError):
    """The API server returned an error, with its status code and message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code


class ApiUnreachable(OmeError):
    """Error: the API server did not respond. The error is expected while the API server is starting."""


class KubeApi:
    """A connection to the API server with the identity in a kubeconfig. The kubeconfig was written by
    `kubeconfig.with_certificate` or by kind.
    """

    def __init__(self, server: str, context: ssl.SSLContext, timeout: float = 10.0) -> None:
        self._server, self._context, self._timeout = urlsplit(server), context, timeout
        self._connection = self._connect()

    @classmethod
    def of(cls, kubeconfig: Path, timeout: float = 10.0, server: str | None = None) -> Self:
        """Return the client of a kubeconfig file. If `server` is given, this address is used instead of the address in
        the file.
        """
        config = load(kubeconfig)
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        with tempfile.NamedTemporaryFile(dir=kubeconfig.parent, prefix=".identity-") as pem:
            pem.write(base64.b64decode(user["client-certificate-data"]) + b"\n")
            pem.write(base64.b64decode(user["client-key-data"]))
            pem.flush()
            context.load_cert_chain(pem.name)
        return cls(server or cluster["server"], context, timeout)

    def get(self, path: str) -> Any:
        """Send a GET request. Return the parsed body of the response, or its text if it is not JSON."""
        return self.request("GET", path)

    def request(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """Send a request, and return the parsed response body, or its text if it is not JSON. `kind` is the content type of
        `body`. If the connection fails, the request is sent once more on a new connection, except after a refused
        connection or a timeout. Raises ApiError if the response is an error, and ApiUnreachable if there is no response.
        """
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": kind, "Accept": "application/json"}
        for last in (False, True):
            try:
                self._connection.request(method, path, content, headers)
                reply = self._connection.getresponse()
                text = reply.read().decode()
                break
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                self._connection = self._connect()
                if last or isinstance(error, ConnectionRefusedError | TimeoutError):
                    raise ApiUnreachable(str(error) or type(error).__name__) from error
        if reply.status >= 400:
            raise ApiError(reply.status, _message(text))
        return _parsed(text)

    def create(self, path: str, body: Any) -> bool:
        """Send a POST request that creates the object `body`. Return whether the object was created; False if it exists
        already.
        """
        try:
            self.request("POST", path, body)
        except ApiError as error:
            if error.code == 409:
                return False
            raise
        return True

    def _connect(self) -> http.client.HTTPSConnection:
        host, port = self._server.hostname or "", self._server.port or 443
        return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=self._context)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def load(path: Path) -> Any:
    """Return the content of a kubeconfig file. This package writes JSON, and kind writes YAML."""
    text = path.read_text()
    if text.lstrip().startswith("{"):
        return json.loads(text)
    import yaml  # imported only for kind, because it costs memory that the token keeper does not need otherwise

    return yaml.safe_load(text)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _message(text: str) -> str:
    parsed = _parsed(text)
    return str(parsed.get("message", text)) if isinstance(parsed, dict) else text.strip()
