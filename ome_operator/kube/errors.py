"""What the API server can answer instead of success. `ome_operator/errors.py` draws the exceptions above KubeError.

KubeError
├── Conflict       409: the object is not the one that was meant, or has changed meanwhile
├── AlreadyExists  409: a POST of a name that is taken
├── NotFound       404: an API server says that the very object that was asked for is not there
├── Forbidden      403: our Role, an admission policy, a quota, Pod Security
├── Invalid        400, 422, and 500 for an applied object of another shape: trying again does not help
├── Unauthorized   401: the token is old
├── TooMany        429: `retry_after` says how long to wait
└── Transient      everything that may be better soon: timeouts, connections
    ├── ServerError  5xx: the API server, or a webhook that it asks, cannot answer
    └── NotServed  any other 404: of a kind that is not installed, a namespace that is not there, a proxy
"""

from collections.abc import Mapping
from typing import Any

from ome_operator.errors import OmeError


class KubeError(OmeError):
    """An answer other than success; `str()` is the sentence of the API server."""

    def __init__(self, message: str, code: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after


class Conflict(KubeError):
    """The object is not the one that was meant, or has changed meanwhile."""


class AlreadyExists(KubeError):
    """The name is taken."""


class NotFound(KubeError):
    """There is no such object: whoever knew it may forget it."""


class Forbidden(KubeError):
    """We, or objects like this one, are not allowed."""


class Invalid(KubeError):
    """The object is wrong in itself."""


class Unauthorized(KubeError):
    """Who we say we are is not believed (any more)."""


class TooMany(KubeError):
    """The API server asks to wait `retry_after` seconds."""


class Transient(KubeError):
    """It may work soon."""


class ServerError(Transient):
    """The API server cannot do it now, or a webhook that it has to ask does not answer."""


class NotServed(Transient):
    """A 404 that tells nothing about the object: nobody serves this path, or something else is missing."""


MALFORMED = "failed to create typed patch object"
"""What an API server says, with code 500, of an applied object that has fields or lists which its kind has not."""
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
    """The error for an answer; `status` is its body, a `Status` object or any text, and `asked` the plural name of a kind
    and the name of the object that was asked for, if it was one.
    """
    fields = status if isinstance(status, dict) else {}
    kind = _BY_CODE.get(code, ServerError if code >= 500 else Invalid)
    if kind is Conflict and fields.get("reason") == "AlreadyExists":
        kind = AlreadyExists
    if kind is Invalid and any(cause.get("field") == "metadata.uid" for cause in _causes(fields)):
        kind = Conflict  # a write that carries another UID is told that UIDs are immutable
    if kind is NotServed and _is_about(fields, *asked):
        kind = NotFound
    message = str(fields.get("message") or (status if isinstance(status, str) else "") or f"HTTP {code}")
    if kind is ServerError and MALFORMED in message:
        kind = Invalid
    try:
        wait = float(retry_after)
    except ValueError:
        wait = 1.0 if kind is TooMany else 0.0
    return kind(message, code, wait)


def _is_about(status: Mapping[str, Any], plural: str, name: str) -> bool:
    """Whether a `Status` says that just this object is not found: where a namespace is missing, or what a webhook looks for,
    it names that. Logs that a kubelet does not find are of kind `pods/log`.
    """
    details = _details(status)
    named = str(details.get("kind")).partition("/")[0], details.get("name")
    return bool(name) and (status.get("kind"), status.get("reason")) == ("Status", "NotFound") and named == (plural, name)


def _causes(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    return _details(status).get("causes") or []


def _details(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of a `Status`; proxies have other things in a field of this name."""
    details = status.get("details")
    return details if isinstance(details, dict) else {}
