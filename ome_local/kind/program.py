"""The programs `docker` and `kind`: checks whether they can be used, and the informative part of their error messages."""

import re
import shutil
import subprocess
from collections.abc import Sequence

from ome_operator.errors import UserError

_LAST = 5
"""Number of last lines of an error message that are reported. Kind prints the output of the failed command at the end."""
_TELLING = ("ERROR", "✗")
"""Beginnings of the lines that contain the failed step and its reason."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def why_not() -> str:
    """Return why kind cannot be used, as the end of a sentence; "" if kind can be used."""
    for program in ("docker", "kind"):
        if shutil.which(program) is None:
            return f"there is no `{program}` in PATH"
    if run(["docker", "info"], check=False).returncode:
        return "`docker info` reports that the Docker server cannot be reached"
    return ""


def require() -> None:
    """Raise UserError unless Docker answers and kind is installed."""
    if reason := why_not():
        raise UserError(f"--kind needs Docker and kind, but {reason}.")


def run(command: Sequence[str], *, check: bool = True, said: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a command with the text `said` on its stdin. Raises UserError with the command's error message if `check` is
    true and the command fails.
    """
    done = subprocess.run(command, input=said, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise UserError(f"`{' '.join(command[:3])}` failed: {complaint(done.stderr)}")
    return done


def complaint(text: str) -> str:
    """Return the informative lines of an error message: the failed step, the error, and the last lines."""
    lines = [line.rstrip() for line in _COLOUR.sub("", text).splitlines() if line.strip()]
    first, last = lines[:-_LAST], lines[-_LAST:]
    told = [*(line for line in first if line.strip().startswith(_TELLING)), *last]
    return "\n".join(told) or "(no output)"
