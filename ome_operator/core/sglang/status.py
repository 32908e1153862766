"""Statuses of the kinds of sglang.ai: those of what was made of them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ome_operator.api import Serving, SglangModel
from ome_operator.core.reasons import READY, Reason
from ome_operator.core.status import conditions as cond

_COPIED = ("state", "url", "runtime")


def mirrored(
    short: SglangModel | Serving, made: Mapping[str, Any] | None, why: tuple[str, str], now: datetime
) -> dict[str, Any]:
    """The status of an object of sglang.ai from the status of what was made of it, or from why nothing was."""
    shared = {name: made[name] for name in _COPIED if made and made.get(name)}
    shared = {name: value for name, value in shared.items() if (name == "state") == isinstance(short, SglangModel)}
    if made is not None and made.get("conditions") and not why[0]:
        conditions = [{**one, "observedGeneration": short.generation} for one in made["conditions"]]
    else:
        reason, sentence = why if why[0] else (Reason.CREATING, "it was just made")
        one = cond.Condition(READY, False, reason, sentence)
        conditions = cond.stamp([one], short.status.get("conditions") or (), short.generation, now)
    return {**shared, "observedGeneration": short.generation, "conditions": conditions}
