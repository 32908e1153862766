"""Options that several commands without a cluster have, and readers of options."""

from pathlib import Path
from typing import Annotated

import typer

from ome_operator.errors import InvalidOption
from ome_operator.settings import Policy

_FILES = typer.Option("--filename", "-f", help="YAML file, folder, or - for standard input; may be repeated.")
Files = Annotated[list[Path], _FILES]
OptionalFiles = Annotated[list[Path] | None, _FILES]


def parse_roots(given: list[str] | None) -> tuple[str, ...]:
    """Return the directories below which agents write, without a trailing slash. Agents normalize them in the same way.
    Without `given`, return the default directories. Raises ValueError for a relative path.
    """
    if relative := [root for root in given or () if not root.startswith("/")]:
        raise ValueError(f"{relative[0]} is not an absolute path: write a path such as {Policy.agent_roots[0]}.")
    return tuple(root.rstrip("/") for root in given or ()) or Policy.agent_roots


def preflight_mode(text: str) -> str:
    """Return the preflight mode that the text of --preflight selects. Raises InvalidOption for an unknown mode."""
    from ome_operator.core.preflight.mode import MODES, parse_mode

    if found := parse_mode(text):
        return found
    raise InvalidOption(f"--preflight is {text!r}: write {', '.join(MODES)}.")
