"""Read the last log lines of a container, which the kubelet keeps as its termination message."""

import re

_ERROR = re.compile(r"[\w.]*(Error|Exception|Interrupt)\b")
_DEATH = re.compile(r"crashed with exit code|exit code: ?-?\d|terminated with -?\d|hit an exception|[Ss]egmentation fault")
"""Lines in which a parent process says that one of its processes has ended."""
_AFTERWARDS = re.compile(r"kill_process_tree called|Received sigquit from a child")
"""Lines that an engine writes while it ends its other processes. Such lines name no cause."""
_LINE_LIMIT = 400
_TAIL_LIMIT = 600


def most_informative_line(log: str) -> str:
    """Return the most informative line of a log, or "" for a log without text. The last line of the first of these kinds
    that occurs is used: a line that names an error, as at the end of a Python traceback; a line that states how a
    process ended; a line that is not about the end of the other processes; any line.
    """
    lines = [line.strip() for line in _lines(log).splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.match(line)]
    deaths = [line for line in lines if _DEATH.search(line)]
    causes = [line for line in lines if not _AFTERWARDS.search(line)]
    return (errors or deaths or causes or lines or [""])[-1][:_LINE_LIMIT]


def last_lines(log: str) -> str:
    """Return as many of the last lines of a log as the limit allows, together with the most informative line."""
    text = _lines(log).strip()
    line = most_informative_line(text)
    if len(text) <= _TAIL_LIMIT:
        return text
    end = text[-_TAIL_LIMIT:].partition("\n")[2] or text[-_TAIL_LIMIT:]
    return end if line in end else f"{line}\n…\n{end}"


def replace_unprintable(text: str, keep: str = "") -> str:
    """Replace unprintable characters, which could move the cursor of a terminal that shows the status. Characters in
    `keep` are not replaced.
    """
    return "".join(mark if mark.isprintable() or mark in keep else "\ufffd" for mark in text)


def _lines(log: str) -> str:
    return replace_unprintable("\n".join(log.splitlines()), "\n\t")
