"""`make help` shows everything that can be made."""

import re
import subprocess

from tests.support import parts


def test_every_target_is_shown() -> None:
    """Each has a line behind `##`, and the pattern of `help` finds its name, digits included."""
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)$", (parts.ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    told = subprocess.run(["make", "-C", parts.ROOT, "-s", "help"], capture_output=True, text=True, check=True).stdout
    assert {line.split()[1] for line in told.splitlines() if line.startswith("  make ")} == set(
        phony[1].replace("\\", "").split()
    )
