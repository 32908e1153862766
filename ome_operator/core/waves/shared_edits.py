"""Determine which edits of shared objects a service rolls out, and which of them it has proven (decisions 30).

An edit of the service itself is rolled out at once. An edit of a runtime, a model or an accelerator class is rolled out in
waves over the services that share it, and stops at the first service that fails with it.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from ome_operator import quantity
from ome_operator.api import Invalid
from ome_operator.core.observed.objects import Deps, Epoch, Ref
from ome_operator.core.reasons import READY, RECOVERED, ROLLED_OUT
from ome_operator.core.reconcile.plan import EditState, Stand
from ome_operator.core.resolve.finetuned import BASE
from ome_operator.core.resolve.identity import CHOSEN

_CLASS, _TUNED = "AcceleratorClass", "FineTunedWeight"
_WEIGHTS = frozenset({"ClusterBaseModel", "BaseModel", _TUNED})
_CLASS_OWN = frozenset({"class", "asked", "nodeSelector"})
"""The fields that a component takes from its accelerator class or the service; all others are set by the runtime."""


def shared_by(inputs: Mapping[str, Any], keeps: Iterable[str] = ()) -> tuple[Ref, ...]:
    """Return the objects that a revision was made of and that other services may share: the runtime first, accelerator
    classes last.

    `keeps`: `runtime` and `model`, if the service does not follow the object.
    """
    runtime, kept = _runtime(inputs), set[Ref | None]()
    if "runtime" in keeps:
        kept.add(runtime)
    if "model" in keeps:
        kept.add(_weights(inputs.get(BASE) or inputs.get("model") or {}))
    return tuple(ref for ref in (runtime, *_parts(inputs)) if ref is not None and ref not in kept)


def pending(target: str, before: Iterable[str], data: Mapping[str, Mapping[str, Any]]) -> dict[Ref, bool]:
    """Return the shared objects whose edit distinguishes the target from an earlier revision that was complete or exists,
    the runtime first, with whether the edit is narrow (`Stand.narrow`).

    `data`: what each revision stores. A revision that is not stored any more differs in all objects. A reference to another
    object is an edit of the service itself.
    """
    wanted = _inputs(target, data)
    if wanted is None:
        return {}
    found: dict[Ref, bool] = {}
    for revision in before:
        if revision != target:
            for ref, narrow in _changed(wanted, _inputs(revision, data)).items():
                found[ref] = narrow and found.get(ref, True)
    return {ref: found[ref] for ref in shared_by(wanted) if ref in found}


def whole_before(status: Mapping[str, Any]) -> frozenset[str]:
    """Return the revisions that were complete last, from the stored status of a service."""
    parts = (status.get("components") or {}).values()
    return frozenset(one["latestReadyRevision"] for one in parts if one.get("latestReadyRevision"))


def epochs(refs: Iterable[Ref], deps: Deps) -> dict[Ref, Epoch]:
    """Return the epoch (between which edits it is now) of each object."""
    return {ref: _epoch(ref, deps) for ref in refs}


def reached(
    stored: Iterable[Mapping[str, Any]], arrived: Iterable[Ref], now_at: Mapping[Ref, Epoch], now: datetime
) -> list[dict[str, Any]]:
    """Return `status.reached`: the edits that have reached the service and still count, and those that `arrived` now."""
    proven = dict(_proven(stored, now_at))
    proven |= {ref: now.isoformat(timespec="seconds") for ref in arrived if now_at[ref].uid}
    return [
        {**{key: part for key, part in ref._asdict().items() if part}, **now_at[ref]._asdict(), "time": time}
        for ref, time in sorted(proven.items())
    ]


def stands(
    now_at: Mapping[Ref, Epoch],
    waits: Mapping[Ref, bool],
    *,
    failed: bool,
    current: bool,
    status: Mapping[str, Any],
    now: datetime,
) -> dict[Ref, Stand]:
    """Return the state of a service with regard to each shared object.

    `waits`: what `pending` returned. `current`: whether the target was made of the objects as they are now.
    """
    proven, said = dict(_proven(status.get("reached") or (), now_at)), {each["type"]: each for each in status["conditions"]}
    recovered: Mapping[str, Any] = said.get(RECOVERED, {})
    # Based on Ready: a service that waits for its wave still serves, and is unchanged if the edit is reverted.
    since = _whole_since(said[READY]["lastTransitionTime"], recovered, now) if current and _serves_alone(said) else None
    out = {}
    for ref, epoch in now_at.items():
        if ref in waits:
            out[ref] = Stand(epoch, EditState.FAILED if failed else EditState.PENDING, narrow=waits[ref])
        elif ref in proven:
            out[ref] = Stand(epoch, EditState.DONE, _whole_since(proven[ref], recovered, now))
        else:
            out[ref] = Stand(epoch) if since is None else Stand(epoch, EditState.EQUAL, since)
    return out


def _serves_alone(said: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether the desired revision is complete, the only one, and ready."""
    return all(name in said and said[name]["status"] == "True" for name in (READY, ROLLED_OUT))


def _whole_since(time: str, recovered: Mapping[str, Any], now: datetime) -> datetime | None:
    """Return since when a service that became complete at `time` has been complete; None while a group of it is lost. A
    time in the future counts as now.
    """
    if recovered.get("status") == "False":
        return None
    moments = [time, *([recovered["lastTransitionTime"]] if recovered else [])]
    return max(quantity.moment(text, now) or now for text in moments)


def _proven(stored: Iterable[Mapping[str, Any]], now_at: Mapping[Ref, Epoch]) -> Iterator[tuple[Ref, str]]:
    for each in stored:
        ref = Ref(each.get("kind") or "", each.get("namespace") or "", each.get("name") or "")
        if now_at.get(ref) == (each.get("uid"), each.get("generation")):
            yield ref, str(each.get("time") or "")


def _inputs(revision: str, data: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any] | None:
    stored = data.get(revision)
    return None if stored is None else stored["inputs"]


def _changed(wanted: Mapping[str, Any], old: Mapping[str, Any] | None) -> dict[Ref, bool]:
    """Return the objects of `wanted` that were different in `old` under the same name, with whether the edit is narrow."""
    if old is None:
        return dict.fromkeys(shared_by(wanted), False)
    parts = _parts(old)
    found = {ref: False for ref, part in _parts(wanted).items() if ref in parts and parts[ref] != part}
    runtime = _runtime(wanted)
    if runtime is None or _runtime(old) not in (None, runtime):
        return found
    if wanted.get("runtime") != old.get("runtime"):
        return found | {runtime: False}
    return found | {runtime: True} if _by_runtime(wanted, old) else found


def _runtime(inputs: Mapping[str, Any]) -> Ref | None:
    return Ref(**inputs[CHOSEN]) if inputs.get(CHOSEN) else None


def _weights(identity: Mapping[str, Any]) -> Ref:
    return Ref(identity.get("kind", ""), identity.get("namespace", ""), identity.get("name", ""))


def _parts(inputs: Mapping[str, Any]) -> dict[Ref, Any]:
    """Return the models and accelerator classes of a revision, with the part of the inputs that comes from each."""
    models = {
        _weights(each): each for each in (inputs.get("model"), inputs.get(BASE)) if each and each.get("kind") in _WEIGHTS
    }
    classes = {
        Ref(_CLASS, "", part["class"]): part.get("nodeSelector") for part in (inputs.get("accelerator") or {}).values()
    }
    return {**models, **classes}


def _by_runtime(wanted: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Return whether the runtime itself changes what it adds for an accelerator class, or whether it requires a class."""
    mine, before = wanted.get("accelerator") or {}, old.get("accelerator") or {}
    for component in mine.keys() | before.keys():
        now, then = mine.get(component), before.get(component)
        if now and then and now["class"] == then["class"]:
            if _of_runtime(now) != _of_runtime(then):
                return True
        elif "by" in ((now or then or {}).get("asked") or {}):
            return True
    return False


def _of_runtime(part: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key not in _CLASS_OWN}


def _epoch(ref: Ref, deps: Deps) -> Epoch:
    named = {_CLASS: deps.accelerators, _TUNED: deps.weights}
    found = named[ref.kind].get(ref.name) if ref.kind in named else deps.runtimes.get(ref) or deps.models.get(ref)
    return Epoch("", 0) if found is None or isinstance(found, Invalid) else Epoch(found.uid, found.generation)
