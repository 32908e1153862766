"""Tests of the meaning of the API server's status codes."""

import errno
import ssl
from types import SimpleNamespace

import aiohttp
import pytest

from ome_operator.kube import errors


def answered(code: int, message: str) -> errors.KubeError:
    return errors.from_response(code, {"kind": "Status", "message": message})


def test_code_500_about_an_invalid_object_is_not_retried() -> None:
    """An error with the code 500 about an object of the wrong form is not retried, unlike other errors with this code, such
    as that about a webhook that is down. The API server answers with such an error if an applied object has an unknown
    field.
    """
    said = (
        "failed to create typed patch object (team/a; apps/v1, Kind=StatefulSet): .spec.template.spec.minReplica: field not "
        "declared in schema"
    )
    assert isinstance(answered(500, said), errors.Invalid)
    assert isinstance(answered(500, "failed calling webhook"), errors.ServerError)
    assert isinstance(answered(503, "the server is starting"), errors.ServerError)


@pytest.mark.parametrize(
    ("cause", "says"),
    [
        (OSError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "Connection refused"),
        (OSError(-2, "Name or service not known"), "Name or service not known"),
        (
            ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"),
            "[SSL: WRONG_VERSION_NUMBER] wrong version number",
        ),
        (ConnectionResetError(), errors.CLOSED),
    ],
)
def test_connection_error_names_address_and_cause(cause: OSError, says: str) -> None:
    """An error message does not contain the TLS settings, of which aiohttp's own message contains the address in memory."""
    key = SimpleNamespace(host="k8s", port=6443, ssl=ssl.create_default_context(), is_ssl=True)
    found = errors.unanswered("GET /api", aiohttp.ClientConnectorError(key, cause))  # type: ignore[arg-type]
    assert isinstance(found, errors.Unreached) and str(found) == f"GET /api: Cannot connect to host k8s:6443 ({says})"


def test_a_server_that_accepts_no_connection_in_time_has_not_received_the_request() -> None:
    found = errors.unanswered("GET /api", aiohttp.ConnectionTimeoutError("Connection timeout to host https://k8s/api"))
    assert isinstance(found, errors.Unreached) and str(found) == "GET /api: Connection timeout to host https://k8s/api"


def test_broken_response_is_a_transient_error_and_not_a_missing_connection() -> None:
    found = errors.unanswered("GET /api", aiohttp.ServerDisconnectedError(), 200)
    assert type(found) is errors.Transient and (str(found), found.code) == ("GET /api: Server disconnected", 200)
    assert str(errors.unanswered("GET /api", TimeoutError())) == "GET /api: TimeoutError"
