"""Options of the commands that run in a pod until they are stopped."""

from pathlib import Path
from typing import Annotated

import typer

from ome_operator.errors import UserError
from ome_operator.settings import Policy

Kubeconfig = Annotated[
    Path | None, typer.Option(help="Kubeconfig file. Without it: the ServiceAccount of this pod.", envvar="KUBECONFIG")
]
LogFormat = Annotated[str, typer.Option(help="console or json.")]
LogLevel = Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")]


def roots(given: list[str] | None) -> tuple[str, ...]:
    """Directories that agents write below, as they call them themselves."""
    return tuple(root.rstrip("/") for root in given or ()) or Policy.agent_roots


def preflight_mode(said: str) -> str:
    """A mode of the preflight. Raises UserError."""
    from ome_operator.core.preflight.mode import MODES, read

    if found := read(said):
        return found
    raise UserError(f"--preflight is {said!r}: write {', '.join(MODES)}.")
