"""Statuses of the kinds of sglang.ai: those of what was made of them."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ome_operator.api import Serving, SglangModel
from ome_operator.core.reasons import READY, Reason, Why
from ome_operator.core.status import conditions as cond

_COPIED = ("state", "url", "runtime")
_FIELDS = {
    "spec.runtime.name": "spec.runtime", "spec.model.name": "spec.baseModel",
    "spec.storage.storageUri": "spec.source", "spec.storage.path": "spec.path",
}  # fmt: skip
"""Fields of what is made, and those of the short form that they come from."""
_FIELD = re.compile(r"(?<!'s )(?<!\w: )\bspec\.(\w+)")
"""A field that a message means, unless it is one of a runtime."""


def mirrored(short: SglangModel | Serving, made: Mapping[str, Any] | None, why: Why, now: datetime) -> dict[str, Any]:
    """The status of an object of sglang.ai from the status of what was made of it, or from why nothing was."""
    shared = {name: made[name] for name in _COPIED if made and made.get(name)}
    shared = {name: value for name, value in shared.items() if (name == "state") == isinstance(short, SglangModel)}
    if made is not None and made.get("conditions") and not why.reason:
        conditions = [
            {**one, "message": _own_words(short, one.get("message") or ""), "observedGeneration": short.generation}
            for one in made["conditions"]
        ]
    else:
        reason, sentence = why if why.reason else (Reason.CREATING, "it was just made")
        one = cond.Condition(READY, False, reason, sentence)
        conditions = cond.stamp([one], short.status.get("conditions") or (), short.generation, now)
    return {**shared, "observedGeneration": short.generation, "conditions": conditions}


def _own_words(short: SglangModel | Serving, message: str) -> str:
    """A message about what was made, for people who see the short form: its own fields, or whose fields are meant."""
    for theirs, own in _FIELDS.items():
        message = message.replace(theirs, own)
    named = {field.alias for field in type(short.spec).model_fields.values()}
    if all(field in named for field in _FIELD.findall(message)):
        return message
    return f"{'InferenceService' if isinstance(short, Serving) else 'ClusterBaseModel'} {short.name}: {message}"
