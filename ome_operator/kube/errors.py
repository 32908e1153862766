"""Errors that the API server can answer. `ome_operator/errors.py` draws the exceptions above KubeError.

KubeError
├── Conflict       409: the object is not the expected one, or has changed meanwhile
├── AlreadyExists  409: the name of a POST is taken
├── NotFound       404: the API server states that exactly the requested object does not exist
├── Forbidden      403: RBAC, an admission policy, a quota, Pod Security
├── Invalid        400, 422, and 500 for an applied object that does not match its schema: trying again does not help
├── Unauthorized   401: the API server does not accept the credentials
├── TooMany        429: `retry_after` is the number of seconds to wait
├── TooLong        an answer of more bytes than its reader permits
└── Transient      whatever may succeed soon: timeouts, connections
    ├── Unreached    there was no connection to the API server
    ├── ServerError  5xx: the API server, or a webhook that it calls, cannot answer
    └── NotServed  any other 404: the kind is not installed, the namespace is missing, or a proxy answered
"""

import os
from collections.abc import Mapping
from typing import Any

from ome_operator import quantity
from ome_operator.errors import OmeError
from ome_operator.util.wording import error_text

LONGEST_WAIT = 3600
"""Maximum number of seconds for which an answer can delay the next attempt by the header Retry-After."""


class KubeError(OmeError):
    """An answer other than success; `str()` returns the message of the API server."""

    def __init__(self, message: str, code: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after


class Conflict(KubeError):
    """The object has another UID than expected, or has changed since it was read."""


class AlreadyExists(KubeError):
    """An object with the name of the object to create exists already."""


class NotFound(KubeError):
    """The object does not exist, so the caller may forget it."""


class Forbidden(KubeError):
    """RBAC, an admission policy, a quota or Pod Security does not allow the request."""


class Invalid(KubeError):
    """The object is invalid, so trying again does not help."""


class Unauthorized(KubeError):
    """The API server does not accept the credentials (any more)."""


class TooMany(KubeError):
    """The API server asks to wait `retry_after` seconds."""


class TooLong(KubeError):
    """The answer is longer than its reader permits."""


class Transient(KubeError):
    """The request may succeed soon."""


class Unreached(Transient):
    """There was no connection to the API server, so it has not received the request."""


class ServerError(Transient):
    """The API server, or a webhook that it has to call, cannot answer now."""


class NotServed(Transient):
    """A 404 that is not about the object: the path is not served, or something else is missing."""


CLOSED = "the connection was closed before the TLS handshake ended"
"""Reason of an error of asyncio that has no text."""
_CONNECT_TIMEOUT = "Connection timeout to host"
"""Beginning of aiohttp's message if there was no connection in time."""
MALFORMED = "failed to create typed patch object"
"""Part of the message with which an API server answers with code 500, if the fields or lists of an applied object do not
match the schema of its kind."""
_BY_CODE: Mapping[int, type[KubeError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotServed,
    409: Conflict,
    422: Invalid,
    429: TooMany,
}


def from_response(code: int, status: Any, retry_after: str = "", asked: tuple[str, str] = ("", "")) -> KubeError:
    """Return the error for an answer. `status` is its body, a `Status` object or any text; `asked` contains the plural name
    of the kind and the name of the object that the request was about; ("", "") if it was not about a single object.
    `retry_after` is the header Retry-After; "" if it is missing. `code` is the HTTP status.
    """
    fields = status if isinstance(status, dict) else {}
    kind = _BY_CODE.get(code, ServerError if code >= 500 else Invalid)
    if kind is Conflict and fields.get("reason") == "AlreadyExists":
        kind = AlreadyExists
    if kind is Invalid and any(cause.get("field") == "metadata.uid" for cause in _causes(fields)):
        kind = Conflict  # the server refuses a write with another UID because UIDs are immutable
    if kind is NotServed and _is_about(fields, *asked):
        kind = NotFound
    message = str(fields.get("message") or (status if isinstance(status, str) else "") or f"HTTP {code}")
    if kind is ServerError and MALFORMED in message:
        kind = Invalid
    asked_wait = quantity.whole_number(retry_after)
    wait = (1.0 if kind is TooMany else 0.0) if asked_wait is None else float(min(asked_wait, LONGEST_WAIT))
    return kind(message, code, wait)


def without_answer(error: BaseException) -> str:
    """Return why a request has no answer. For a connection that could not be made, the text names the address and the reason
    of the operating system, but not the objects in which aiohttp keeps its settings for TLS.
    """
    cause, host, port = (getattr(error, name, None) for name in ("os_error", "host", "port"))
    if not isinstance(cause, OSError) or host is None:
        return error_text(error)
    why = cause.strerror or str(cause) or CLOSED
    if cause.errno is not None and "Connect call failed" in why:  # asyncio's text, with the address once more
        why = os.strerror(cause.errno)
    return f"Cannot connect to host {host}:{port} ({why})"


def unanswered(request: str, error: BaseException, code: int = 0) -> Transient:
    """Return the error of a request that has no complete answer. `request` names the request in messages. `code` is the HTTP
    status of the incomplete answer; 0 if no status was received.
    """
    unconnected = isinstance(getattr(error, "os_error", None), OSError) or str(error).startswith(_CONNECT_TIMEOUT)
    kind = Unreached if unconnected else Transient
    return kind(f"{request}: {without_answer(error)}", code)


def _is_about(status: Mapping[str, Any], plural: str, name: str) -> bool:
    """Return whether a `Status` states that exactly this object was not found.

    A 404 may also have another cause: the namespace of the object is missing, or a webhook did not find an object that it
    looked up. The status then names the missing object. For a log that a kubelet does not find, the status names the kind
    `pods/log`.
    """
    details = _details(status)
    named = str(details.get("kind")).partition("/")[0], details.get("name")
    return bool(name) and (status.get("kind"), status.get("reason")) == ("Status", "NotFound") and named == (plural, name)


def _causes(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    return _details(status).get("causes") or []


def _details(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the details of a `Status`; {} if the field `details` is not a map, which happens in answers of proxies."""
    details = status.get("details")
    return details if isinstance(details, dict) else {}
