"""Readers of options that several commands have."""

from ome_operator.errors import UserError
from ome_operator.settings import Policy


def parse_roots(given: list[str] | None) -> tuple[str, ...]:
    """Return the directories below which agents write, without a trailing slash. Agents normalise them in the same way.
    Without `given`, return the default directories.
    """
    return tuple(root.rstrip("/") for root in given or ()) or Policy.agent_roots


def preflight_mode(text: str) -> str:
    """Return the preflight mode that the text of --preflight selects. Raises UserError for an unknown mode."""
    from ome_operator.core.preflight.mode import MODES, parse_mode

    if found := parse_mode(text):
        return found
    raise UserError(f"--preflight is {text!r}: write {', '.join(MODES)}.")
