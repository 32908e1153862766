"""Services that do not follow edits of runtime or model: they keep what a stored revision has (docs/revisions.md).

With `autoSync: false` that is the newest revision, or the one that `revision` names. A new value of the annotation takes the
object as it is now, once: the status remembers the last value that did.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.api.service import ServiceSpec
from ome_operator.core.observed.objects import Manifest, Ref
from ome_operator.core.problem import Problem
from ome_operator.core.reasons import MODEL_READY, RUNTIME_READY, Reason
from ome_operator.core.resolve.finetuned import BASE
from ome_operator.core.resolve.identity import CHOSEN, same

Part = Literal["runtime", "model"]


class _Words(NamedTuple):
    """How a part is called where."""

    annotation: str
    token: str
    """Field of the status with the last value of the annotation that was acted on."""
    ready: str
    """The condition that a mistake makes False."""


WORDS: Mapping[Part, _Words] = {
    "runtime": _Words(keys.RUNTIME_SYNC, "lastRuntimeSyncToken", RUNTIME_READY),
    "model": _Words(keys.MODEL_SYNC, "lastModelSyncToken", MODEL_READY),
}


@dataclass(frozen=True)
class Pinned:
    """What a service has of its runtime or model."""

    part: Manifest
    """As inputs store it."""
    inputs: Mapping[str, Any] | None = None
    """The stored inputs that it is taken from; None when it is as the object is now."""
    drift: str | None = None
    """How the object differs by now and what to do, "" when it does not; None for a service that follows it."""
    problems: tuple[Problem, ...] = ()


def pinned(service: InferenceService, part: Part, ref: Ref, now: Manifest, kept: Mapping[str, Mapping[str, Any]]) -> Pinned:
    """What a service has of its runtime or model `ref`, which is `now` as inputs store it.

    `kept`: revision -> stored inputs, oldest first.
    """
    asked = getattr(service.spec, part)
    if asked is None or asked.auto_sync is not False:
        return Pinned(now)
    source = asked.revision or next(iter([*kept][-1:]), "")
    fits = source in kept and _ref(part, kept[source]) == ref
    if asked.revision and not fits:
        return Pinned(now, problems=(_unknown(part, source, ref, kept),))
    if not fits or (not asked.revision and _asked_to_sync(service, part)):
        return Pinned(now, drift="")
    found = _stored(part, kept[source])
    changed = not same({part: found}, {part: now})
    return Pinned(found, kept[source], _drift(service, part, ref, source) if changed else "")


def _stored(part: Part, inputs: Mapping[str, Any]) -> Manifest:
    """A part as stored inputs have it: of the model the one that was named, whatever was trained on it."""
    found: Manifest = (inputs.get(BASE) or inputs["model"]) if part == "model" else inputs["runtime"]
    return found


def named(spec: ServiceSpec) -> frozenset[str]:
    """Revisions that a service names for its runtime or model: they are kept."""
    return frozenset(one.revision for one in (spec.runtime, spec.model) if one is not None and one.revision)


def tokens(service: InferenceService, done: bool) -> dict[str, str]:
    """The values of the annotations that were acted on, as the status stores them; `done` when today's inputs are stored."""
    out = {}
    for words in WORDS.values():
        before = service.status.get(words.token) or ""
        if value := service.annotations.get(words.annotation, "") if done else before:
            out[words.token] = value
    return out


def _asked_to_sync(service: InferenceService, part: Part) -> bool:
    value = service.annotations.get(WORDS[part].annotation, "")
    return bool(value) and value != service.status.get(WORDS[part].token)


def _ref(part: Part, inputs: Mapping[str, Any]) -> Ref:
    """The object that stored inputs were made from."""
    found = inputs.get(CHOSEN) or {} if part == "runtime" else _stored("model", inputs)
    return Ref(found.get("kind", ""), found.get("namespace", ""), found.get("name", ""))


def _unknown(part: Part, revision: str, ref: Ref, kept: Mapping[str, Mapping[str, Any]]) -> Problem:
    fit = [name for name, inputs in kept.items() if _ref(part, inputs) == ref]
    said = f"spec.{part}.revision {revision} is no kept revision of this service with {ref.kind} {ref.name}"
    remedy = f"(kept: {', '.join(fit) or 'none'}): name one of them, or remove the field"
    return Problem(WORDS[part].ready, Reason.REVISION_NOT_FOUND, f"{said} {remedy}")


def _drift(service: InferenceService, part: Part, ref: Ref, source: str) -> str:
    sync = f"kubectl annotate isvc {service.name} -n {service.namespace} {WORDS[part].annotation}=$(date +%s) --overwrite"
    unpin = f"remove spec.{part}.revision, then " if getattr(service.spec, part).revision else ""
    said = f"{ref.kind} {ref.name} is another by now, and this service keeps it as revision {source} has it"
    return f"{said}. To take it as it is: {unpin}`{sync}`"
