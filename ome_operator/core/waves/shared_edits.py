"""Determine which edits of shared objects are rolled out to a service, and with which of these edits the service has become
complete (decisions 30).

An edit of the service itself is rolled out at once. An edit of a runtime, a model or an accelerator class is rolled out in
waves to the services that share the object. The rollout stops at the first service that fails with the edit.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from ome_operator import quantity
from ome_operator.api import Invalid
from ome_operator.core.observed.objects import Deps, Epoch, Ref
from ome_operator.core.reasons import READY, RECOVERED, ROLLED_OUT, SCALED
from ome_operator.core.reconcile.plan import EditStand, EditState
from ome_operator.core.resolve.finetuned import BASE
from ome_operator.core.resolve.identity import CHOSEN

_CLASS, _TUNED = "AcceleratorClass", "FineTunedWeight"
_WEIGHTS = frozenset({"ClusterBaseModel", "BaseModel", _TUNED})
_CLASS_OWN = frozenset({"class", "asked", "nodeSelector"})
"""The fields of the accelerator inputs of a component that come from its accelerator class or from the service. All other
fields come from the runtime."""


_SHARED = frozenset({"runtime", CHOSEN, "model", BASE, "accelerator"})
"""The inputs of a revision that come from objects that services share."""


def shared_by(inputs: Mapping[str, Any], keeps: Iterable[str] = ()) -> tuple[Ref, ...]:
    """Return the objects from which a revision was made and that other services may share: the runtime first, accelerator
    classes last.

    `keeps` contains `runtime` or `model` if edits of this object are not rolled out to the service.
    """
    runtime, kept = _runtime(inputs), set[Ref | None]()
    if "runtime" in keeps:
        kept.add(runtime)
    if "model" in keeps:
        kept.add(_weights(inputs.get(BASE) or inputs.get("model") or {}))
    return tuple(ref for ref in (runtime, *_parts(inputs)) if ref is not None and ref not in kept)


def pending_edits(target: str, before: Iterable[str], data: Mapping[str, Mapping[str, Any]]) -> dict[Ref, bool]:
    """Return the shared objects whose edits distinguish the target from an earlier revision, the runtime first. For each
    object, return whether the edit is narrow (`EditStand.narrow`).

    `before` contains the earlier revisions that exist or were complete last. `data` contains the stored data of each
    revision. If an earlier revision is no longer stored, all objects of the target are returned. A reference to a different
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


def edited_itself(target: str, before: Iterable[str], data: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether the target differs from an earlier revision in inputs that the service itself contains. If it does, an
    edit of the service may be the reason why the target is refused. The arguments are those of `pending_edits`.
    """
    wanted = _inputs(target, data)
    others = (_inputs(revision, data) for revision in before if revision != target)
    return wanted is not None and any(old is not None and _own(old) != _own(wanted) for old in others)


def whole_before(status: Mapping[str, Any]) -> frozenset[str]:
    """Return the name of the last complete revision of each component, from the stored status of a service."""
    parts = (status.get("components") or {}).values()
    return frozenset(one["latestReadyRevision"] for one in parts if one.get("latestReadyRevision"))


def epochs(refs: Iterable[Ref], deps: Deps) -> dict[Ref, Epoch]:
    """Return the present epoch of each object: the UID of the object and the generation of its spec."""
    return {ref: _epoch(ref, deps) for ref in refs}


def reached_edits(
    stored: Iterable[Mapping[str, Any]], arrived: Iterable[Ref], now_at: Mapping[Ref, Epoch], now: datetime
) -> list[dict[str, Any]]:
    """Return `status.reached`: the edits of shared objects with which the service has become complete, and that are still
    the last edits of their objects. The edits of the objects in `arrived` are added, because the service has become
    complete with them now.
    """
    proven = dict(_proven(stored, now_at))
    proven |= {ref: now.isoformat(timespec="seconds") for ref in arrived if now_at[ref].uid}
    return [
        {**{key: part for key, part in ref._asdict().items() if part}, **now_at[ref]._asdict(), "time": time}
        for ref, time in sorted(proven.items())
    ]


def edit_states(
    now_at: Mapping[Ref, Epoch],
    waits: Mapping[Ref, bool],
    *,
    failed: bool,
    current: bool,
    status: Mapping[str, Any],
    now: datetime,
    lacks: datetime | None = None,
    left_out: bool = False,
) -> dict[Ref, EditStand]:
    """Return the state of a service with respect to each shared object.

    `now_at` contains the present epoch of each shared object, `waits` the result of `pending_edits`. `failed` is true if the
    rollout of the service failed. `current` is true if the target was made from the present versions of the objects. `lacks`
    is the time of `EditStand.lacks`. `left_out` is true if the service cannot begin because of an edit of the service
    itself. Such a service is not part of the waves.
    """
    proven = dict(_proven(status.get("reached") or (), now_at))
    conditions = {each["type"]: each for each in status["conditions"]}
    recovered: Mapping[str, Any] = conditions.get(RECOVERED, {})
    since = _complete_since(conditions, recovered, now) if current and _serves_alone(conditions) else None
    out = {}
    for ref, epoch in now_at.items():
        if ref in waits and left_out:
            out[ref] = EditStand(epoch)
        elif ref in waits:
            state = EditState.FAILED if failed and lacks is None else EditState.PENDING
            out[ref] = EditStand(epoch, state, narrow=waits[ref], lacks=lacks)
        elif ref in proven:
            out[ref] = EditStand(epoch, EditState.DONE, _whole_since(proven[ref], recovered, now))
        else:
            out[ref] = EditStand(epoch) if since is None else EditStand(epoch, EditState.EQUAL, since)
    return out


def _serves_alone(conditions: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether the desired revision is complete, ready, and the only revision."""
    return all(name in conditions and conditions[name]["status"] == "True" for name in (READY, ROLLED_OUT))


def _complete_since(
    conditions: Mapping[str, Mapping[str, Any]], recovered: Mapping[str, Any], now: datetime
) -> datetime | None:
    """Return since when a service that is complete has served with all of its groups; None while a group is lost.

    The time of RolledOut is not used, because a service that waits for its wave keeps its groups, and stays unchanged if the
    edit is reverted. Ready alone does not suffice, because a service is Ready while groups are missing.
    """
    times = [
        _whole_since(conditions[name]["lastTransitionTime"], recovered, now)
        for name in (READY, SCALED)
        if name in conditions
    ]
    return None if None in times else max(time for time in times if time is not None)


def _whole_since(time: str, recovered: Mapping[str, Any], now: datetime) -> datetime | None:
    """Return since when a service that became complete at `time` has been complete without interruption; None while a
    group of the service is lost. A time in the future is replaced by `now`.
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


def _own(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in inputs.items() if key not in _SHARED}


def _inputs(revision: str, data: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any] | None:
    stored = data.get(revision)
    return None if stored is None else stored["inputs"]


def _changed(wanted: Mapping[str, Any], old: Mapping[str, Any] | None) -> dict[Ref, bool]:
    """Return the objects of the inputs `wanted` that were different in the inputs `old` under the same name. For each
    object, return whether the edit is narrow.
    """
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
    """Return the models and accelerator classes of a revision, each with the part of the inputs that comes from it."""
    models = {
        _weights(each): each for each in (inputs.get("model"), inputs.get(BASE)) if each and each.get("kind") in _WEIGHTS
    }
    classes = {
        Ref(_CLASS, "", part["class"]): part.get("nodeSelector") for part in (inputs.get("accelerator") or {}).values()
    }
    return {**models, **classes}


def _by_runtime(wanted: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Return whether an edit of the runtime has changed the settings that it adds for an accelerator class, or whether it
    requires a class.
    """
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
