"""Keep the runtime or model of a service at a stored revision, so that its edits are not rolled out (docs/revisions.md).

With `autoSync: false` a service keeps the newest stored revision, or the revision that `revision` names. If the user changes
the value of the sync annotation, the service adopts the current object once. The status records the last value on which the
operator has acted.
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
from ome_operator.core.resolve.identity import CHOSEN, equivalent

Part = Literal["runtime", "model"]


class _PartNames(NamedTuple):
    """The names that are used for the runtime, or for the model, of a service: an annotation, a field of the status, and a
    condition.
    """

    annotation: str
    token: str
    """Field of the status that stores the last value of the annotation that the operator has acted on."""
    ready: str
    """Condition that is False if there is a mistake in the reference to the runtime or model."""


PART_NAMES: Mapping[Part, _PartNames] = {
    "runtime": _PartNames(keys.RUNTIME_SYNC, "lastRuntimeSyncToken", RUNTIME_READY),
    "model": _PartNames(keys.MODEL_SYNC, "lastModelSyncToken", MODEL_READY),
}


@dataclass(frozen=True)
class PinnedObject:
    """The runtime or model that a service uses, in the form in which the inputs of a revision store it."""

    part: Manifest
    """The stored form of the runtime or model."""
    inputs: Mapping[str, Any] | None = None
    """The stored inputs from which `part` was taken; None if it was taken from the current object."""
    drift: str | None = None
    """Description of how the current object differs from `part`, and of what to do; "" if they are equal; None if edits of
    the object are rolled out to the service."""
    problems: tuple[Problem, ...] = ()


def pinned_version(
    service: InferenceService, part: Part, ref: Ref, now: Manifest, kept: Mapping[str, Mapping[str, Any]]
) -> PinnedObject:
    """Return the runtime or model `ref` in the version that the service uses. `part` states whether it is the runtime or the
    model.

    `now` is the stored form of the current object. `kept` maps revisions to stored inputs, oldest first.
    """
    asked = getattr(service.spec, part)
    if asked is None or asked.auto_sync is not False:
        return PinnedObject(now)
    source = asked.revision or next(iter([*kept][-1:]), "")
    fits = source in kept and _ref(part, kept[source]) == ref
    if asked.revision and not fits:
        return PinnedObject(now, problems=(_unknown(part, source, ref, kept),))
    if not fits or (not asked.revision and _asked_to_sync(service, part)):
        return PinnedObject(now, drift="")
    stored = _stored(part, kept[source])
    changed = not equivalent({part: stored}, {part: now})
    return PinnedObject(stored, kept[source], _drift(service, part, ref, source) if changed else "")


def _stored(part: Part, inputs: Mapping[str, Any]) -> Manifest:
    """Return the runtime or model that the stored inputs of a revision contain, as a manifest. `part` selects which of them.
    If merged weights replace the model, the base model is returned.
    """
    stored: Manifest = (inputs.get(BASE) or inputs["model"]) if part == "model" else inputs["runtime"]
    return stored


def pinned_revisions(spec: ServiceSpec) -> frozenset[str]:
    """Return the revisions that a service names for its runtime or model; they must not be deleted."""
    return frozenset(ref.revision for ref in (spec.runtime, spec.model) if ref is not None and ref.revision)


def sync_tokens(service: InferenceService, done: bool) -> dict[str, str]:
    """Return the annotation values that the operator has acted on, by field of the status.

    `done`: True if inputs made from the current objects are stored, so that the operator has acted on the current values.
    """
    out = {}
    for names in PART_NAMES.values():
        before = service.status.get(names.token) or ""
        if value := service.annotations.get(names.annotation, "") if done else before:
            out[names.token] = value
    return out


def _asked_to_sync(service: InferenceService, part: Part) -> bool:
    value = service.annotations.get(PART_NAMES[part].annotation, "")
    return bool(value) and value != service.status.get(PART_NAMES[part].token)


def _ref(part: Part, inputs: Mapping[str, Any]) -> Ref:
    """Return a reference to the runtime or model (`part`) from which the stored inputs `inputs` were made."""
    stored = inputs.get(CHOSEN) or {} if part == "runtime" else _stored("model", inputs)
    return Ref(stored.get("kind", ""), stored.get("namespace", ""), stored.get("name", ""))


def _unknown(part: Part, revision: str, ref: Ref, kept: Mapping[str, Mapping[str, Any]]) -> Problem:
    fit = [name for name, inputs in kept.items() if _ref(part, inputs) == ref]
    message = f"spec.{part}.revision {revision} is not a stored revision of this service that uses {ref.kind} {ref.name}"
    remedy = f"(stored: {', '.join(fit) or 'none'}): name one of them, or remove the field"
    return Problem(PART_NAMES[part].ready, Reason.REVISION_NOT_FOUND, f"{message} {remedy}")


def _drift(service: InferenceService, part: Part, ref: Ref, source: str) -> str:
    sync = (
        f"kubectl annotate isvc {service.name} -n {service.namespace} {PART_NAMES[part].annotation}=$(date +%s) --overwrite"
    )
    unpin = f"remove spec.{part}.revision, then " if getattr(service.spec, part).revision else ""
    message = f"{ref.kind} {ref.name} has changed, and this service still uses it as stored in revision {source}"
    return f"{message}. To use the current version: {unpin}`{sync}`"
