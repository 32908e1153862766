"""Tests of the log levels of kopf's own messages."""

import logging

import pytest

from ome_operator.watch.tuning import _Sentences

RETRIED = "Request attempt #1/9 failed; will retry: GET https://x/apis/ome.io/v1beta1/y -> storage is (re)initializing"


@pytest.mark.parametrize(
    ("message", "level"),
    [(RETRIED, "WARNING"), ("Request attempt #9/9 failed; escalating: GET https://x", "ERROR"), ("Stop.", "ERROR")],
)
def test_repeated_requests_of_kopf_are_not_logged_as_errors(
    message: str, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages of kopf about requests that it repeats are not logged as errors. They are the first lines in the log of an
    operator that starts just after its CRDs were installed.
    """
    _Sentences().emit(logging.LogRecord("kopf", logging.ERROR, "f", 1, message, (), None))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [(level, message)]
