"""Whose turn it is: an edit of what services share reaches them one after another (decisions 6).

A service that its own user edits rolls at once; a careless edit of a runtime, a model or an accelerator class stops at the
first service that does not become whole with it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

SHARED = ("runtime", "model", "accelerator")
"""Inputs of a revision that other services may have too."""


def shared(target: str, before: Iterable[str], data: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the target differs in a shared input from one of the revisions that were whole or exist before it.

    `data` has what each revision stores. A revision that is not kept any more counts as different.
    """
    wanted = _inputs(data.get(target))
    return any(_inputs(data.get(one)) != wanted for one in before if one != target)


def _inputs(stored: Mapping[str, Any] | None) -> list[Any] | None:
    return None if stored is None else [stored["inputs"].get(part) for part in SHARED]


def whole_before(status: Mapping[str, Any]) -> frozenset[str]:
    """The revisions that were complete last, from a service's stored status."""
    parts = (status.get("components") or {}).values()
    return frozenset(one["latestReadyRevision"] for one in parts if one.get("latestReadyRevision"))
