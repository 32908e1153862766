"""The programs `docker` and `kind`: whether they can be used, and their error messages."""

import re
import shutil
import subprocess
from collections.abc import Sequence

from ome_operator.errors import UserError

_LAST = 5
"""Number of last lines of a failure that are reported. Kind prints the output of the failed command there."""
_TELLING = ("ERROR", "✗")
"""Beginnings of the lines that name the failed step and its reason."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def why_not() -> str:
    """Return why kind cannot be used, as the end of a sentence; "" if it can."""
    for program in ("docker", "kind"):
        if shutil.which(program) is None:
            return f"there is no `{program}` in PATH"
    if run(["docker", "info"], check=False).returncode:
        return "`docker info` says that its server cannot be reached"
    return ""


def require() -> None:
    """Raise UserError unless Docker answers and kind is installed."""
    if reason := why_not():
        raise UserError(f"--kind needs Docker and kind, and {reason}.")


def run(command: Sequence[str], *, check: bool = True, said: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a command with this text on its stdin. Raises UserError with its error message."""
    done = subprocess.run(command, input=said, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise UserError(f"`{' '.join(command[:3])}` failed: {complaint(done.stderr)}")
    return done


def complaint(said: str) -> str:
    """Return the informative lines of an error message: the failed step, the error, and the last lines."""
    lines = [line.rstrip() for line in _COLOUR.sub("", said).splitlines() if line.strip()]
    first, last = lines[:-_LAST], lines[-_LAST:]
    told = [*(line for line in first if line.strip().startswith(_TELLING)), *last]
    return "\n".join(told) or "(nothing was said)"
