"""Configure kopf, which may only list and watch."""

import logging
from collections.abc import Iterable
from typing import Any

import kopf

from ome_operator.watch.informer import BACKOFFS, SILENCE

PAGE = 25
"""Number of objects per page of a list. kopf decodes a page as a whole, after `handlers.py` has limited its depth and the
memory of its objects. Before that, an object may have up to 1.5 MiB."""


def kopf_settings(server_timeout: int) -> kopf.OperatorSettings:
    """Return all settings of kopf that the operator depends on."""
    settings = kopf.OperatorSettings()
    settings.networking.request_timeout = 30.0
    settings.networking.connect_timeout = 5.0
    settings.networking.error_backoffs = BACKOFFS
    settings.watching.connect_timeout = 5.0
    settings.watching.server_timeout = server_timeout
    settings.watching.client_timeout = server_timeout + 30.0
    settings.watching.inactivity_timeout = SILENCE
    settings.watching.reconnect_backoff = 0.1
    settings.watching.chunk_size = PAGE
    settings.process.ultimate_exiting_timeout = 60.0  # seconds until SIGKILL, if kopf ends with an error and then hangs
    settings.scanning.disabled = True  # the chart grants no rights on CRDs and namespaces
    settings.posting.enabled = False
    settings.persistence.diffbase_storage = NoDiffStorage()
    # kopf removes its finalizer from every object that has it. No object can have this finalizer, because its name has
    # no domain.
    settings.persistence.finalizer = "no finalizer"
    return settings


class NoDiffStorage(kopf.DiffBaseStorage):
    """A storage for kopf that stores nothing. kopf uses such a storage to find the differences between versions of an
    object, which no handler needs, and copying a body costs more than all other work for an event.
    """

    def build(self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None) -> kopf.BodyEssence:
        """Return an empty essence (kopf's term for the part of an object that it compares)."""
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """Return None: nothing was stored."""
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Store nothing."""


def suppress_tracebacks() -> None:
    """Keep tracebacks of errors that end kopf out of the log, because the caller of `kopf.operator` logs them in a
    sentence. Tracebacks of handlers are kept.
    """
    logger = logging.getLogger("kopf")
    logger.handlers, logger.propagate = [_Sentences()], False


def expect_an_early_end() -> None:
    """Suppress kopf's warning that its `startup` handler was cancelled, because a standby is stopped in this way."""
    logging.getLogger("kopf").setLevel(logging.ERROR)


_RETRIED = "failed; will retry"
"""Part of kopf's message about a request that it sends again."""


class _Sentences(logging.Handler):
    """Passes the log records of kopf on to the root logger, except errors that the operator itself logs in a sentence."""

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record on, unless it is about an error that `kopf.operator` also raises."""
        if record.exc_info and not record.name.startswith("kopf.objects"):
            return
        if (
            record.levelno == logging.ERROR and _RETRIED in record.getMessage()
        ):  # for example right after the CRDs were installed
            record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        logging.root.handle(record)
