"""The programs `docker` and `kind`: whether they can be used, and what they say when they fail."""

import re
import shutil
import subprocess
from collections.abc import Sequence

from ome_operator.errors import UserError

_LAST = 5
"""Lines from the end that belong to a failure: kind prints there what the failed command said."""
_TELLING = ("ERROR", "✗")
"""What the lines begin with that name the failed step, and the reason with the image."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def why_not() -> str:
    """Why no kind cluster can be touched, as the end of a sentence; "" when it can."""
    for program in ("docker", "kind"):
        if shutil.which(program) is None:
            return f"there is no `{program}` in PATH"
    if run(["docker", "info"], check=False).returncode:
        return "`docker info` says that its server cannot be reached"
    return ""


def require() -> None:
    """Docker must answer and kind must be installed."""
    if reason := why_not():
        raise UserError(f"--kind needs Docker and kind, and {reason}.")


def run(command: Sequence[str], *, check: bool = True, said: str = "") -> "subprocess.CompletedProcess[str]":
    """Run it with these words on its stdin; its complaint as UserError."""
    done = subprocess.run(command, input=said, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise UserError(f"`{' '.join(command[:3])}` failed: {complaint(done.stderr)}")
    return done


def complaint(said: str) -> str:
    """The lines of a failure that tell something: the failed step, the error, and the last ones."""
    lines = [line.rstrip() for line in _COLOUR.sub("", said).splitlines() if line.strip()]
    first, last = lines[:-_LAST], lines[-_LAST:]
    told = [*(line for line in first if line.strip().startswith(_TELLING)), *last]
    return "\n".join(told) or "(nothing was said)"
