"""Formats of log lines, for people and for machines."""

import logging
import sys
from datetime import UTC, datetime

from ome_operator.util.visible import VisibleFormatter, document

CONSOLE = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class Json(logging.Formatter):
    """A formatter that writes each log record as a JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the log record as JSON: its time, level, logger and message, and a traceback if the record is about an
        exception.
        """
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return document(line)


def configure(style: str, level: str) -> None:
    """Configure logging to standard error. `style` is the format of the lines (`console` or `json`), and `level` is the
    lowest level that is logged. Of kopf, aiohttp and asyncio, only warnings and errors are logged.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if style == "json" else VisibleFormatter(CONSOLE))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("kopf").setLevel(logging.WARNING)
    logging.getLogger("aiohttp").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
