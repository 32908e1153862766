"""How kopf is set up: what it may do is to list and to watch."""

import logging
from collections.abc import Iterable
from typing import Any

import kopf

from ome_operator.watch.informer import BACKOFFS, SILENCE

PAGE = 100
"""Objects of a page: kopf decodes it as a whole, and `watch/lines.py` looks at it before."""


def tuned(server_timeout: int) -> kopf.OperatorSettings:
    """Every kopf setting that we rely on."""
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
    settings.process.ultimate_exiting_timeout = 60.0  # SIGKILL, if kopf ends by an error and then hangs
    settings.scanning.disabled = True  # the chart gives no rights on CRDs and namespaces
    settings.posting.enabled = False
    settings.persistence.diffbase_storage = NoDiffs()
    # kopf takes its finalizer off every object that carries it. No object can carry this: it has no domain.
    settings.persistence.finalizer = "no finalizer"
    return settings


class NoDiffs(kopf.DiffBaseStorage):
    """Remembers nothing: no handler asks for what changed, and to copy a body costs more than all the rest of an event."""

    def build(self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None) -> kopf.BodyEssence:
        """Nothing of the object."""
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """Nothing was stored."""
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Store nothing."""


def quiet() -> None:
    """Keep tracebacks of what ended kopf out of the log: whoever called `kopf.operator` says it in a sentence. Tracebacks of
    handlers stay.
    """
    logger = logging.getLogger("kopf")
    logger.handlers, logger.propagate = [_Sentences()], False


def expect_an_early_end() -> None:
    """Let kopf not warn that its `startup` was cut off: that is how a standby is stopped."""
    logging.getLogger("kopf").setLevel(logging.ERROR)


_RETRIED = "failed; will retry"
"""In kopf's message about a request that it sends again."""


class _Sentences(logging.Handler):
    """Passes on to the root logger what kopf logs."""

    def emit(self, record: logging.LogRecord) -> None:
        """Not what `kopf.operator` raises, too."""
        if record.exc_info and not record.name.startswith("kopf.objects"):
            return
        if record.levelno == logging.ERROR and _RETRIED in record.getMessage():  # as right after the CRDs were installed
            record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        logging.root.handle(record)
