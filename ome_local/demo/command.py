"""How the person at this terminal calls `ome`."""

import os
import shutil
import sys
from pathlib import Path


def command() -> str:
    """`ome` when the shell finds it, else the path below the working directory."""
    own = Path(sys.argv[0])
    if shutil.which("ome") and os.path.realpath(str(shutil.which("ome"))) == os.path.realpath(own):
        return "ome"
    try:
        return str(own.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(own)
