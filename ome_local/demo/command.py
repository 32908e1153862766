"""Determine how the user in this terminal calls `ome`."""

import os
import shutil
import sys
from pathlib import Path


def command() -> str:
    """Return `ome` if the shell finds the command, otherwise its path relative to the working directory."""
    own = Path(sys.argv[0])
    if shutil.which("ome") and os.path.realpath(str(shutil.which("ome"))) == os.path.realpath(own):
        return "ome"
    try:
        return str(own.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(own)
