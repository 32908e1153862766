"""Build the statuses of the kinds of sglang.ai from the statuses of the objects that were created for them."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ome_operator.api import Serving, SglangModel
from ome_operator.core.reasons import READY, Reason, ReasonedMessage
from ome_operator.core.status import conditions as cond

_COPIED = ("state", "url", "runtime")
_FIELDS = {
    "spec.runtime.name": "spec.runtime", "spec.model.name": "spec.baseModel",
    "spec.storage.storageUri": "spec.source", "spec.storage.path": "spec.path",
}  # fmt: skip
"""Maps fields of a created object to the fields of the sglang.ai object from which they come."""
_FIELD = re.compile(r"(?<!'s )(?<!\w: )\bspec\.(\w+)")
"""Matches a field name in a message, unless it is a field of a runtime."""


def mirrored_status(
    short: SglangModel | Serving,
    made: Mapping[str, Any] | None,
    why: ReasonedMessage,
    now: datetime,
    *,
    current: bool = True,
) -> dict[str, Any]:
    """Return the status of an object of sglang.ai. It is built from `made`, the status of the object that was created for
    it, or from the reason why there is no such object.

    `current` is false if `made` describes an older generation of the created object. The status then names the generation
    before the last edit, so that its state is not mistaken for the result of that edit.
    """
    shared = {name: made[name] for name in _COPIED if made and made.get(name)}
    shared = {name: value for name, value in shared.items() if (name == "state") == isinstance(short, SglangModel)}
    generation = short.generation
    if made is not None and made.get("observedGeneration") and made.get("conditions") and not why.reason:
        generation -= not current
        conditions = [
            {
                **condition,
                "message": _own_words(short, condition.get("message") or ""),
                "observedGeneration": generation,
            }
            for condition in made["conditions"]
        ]
    else:
        reason, sentence = why if why.reason else (Reason.CREATING, "it was just created")
        condition = cond.Condition(READY, False, reason, sentence)
        conditions = cond.format_conditions([condition], short.status.get("conditions") or (), generation, now)
    return {**shared, "observedGeneration": generation, "conditions": conditions}


def _own_words(short: SglangModel | Serving, message: str) -> str:
    """Translate a message about the created object. Name the fields of the sglang.ai object, or, if that is not possible,
    put the created object's name in front.
    """
    for theirs, own in _FIELDS.items():
        message = message.replace(theirs, own)
    named = {field.alias for field in type(short.spec).model_fields.values()}
    if all(field in named for field in _FIELD.findall(message)):
        return message
    return f"{'InferenceService' if isinstance(short, Serving) else 'ClusterBaseModel'} {short.name}: {message}"
