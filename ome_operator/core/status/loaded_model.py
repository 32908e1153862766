"""Build `status.modelStatus` as OME defines it: whether the model is loaded, the number of copies, and the last failure.

A copy is a group of an engine; prefill groups and decode groups count separately.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ome_operator import keys
from ome_operator.core.observed.objects import Pod
from ome_operator.core.resolve.finetuned import BASE
from ome_operator.core.status.progress import RoleProgress

FAILED = frozenset({"Failed"})
"""Phases of a group that has failed and that the operator no longer recycles."""


def loaded_model(
    progress: Iterable[RoleProgress], pods: Iterable[Pod], groups: Sequence[Mapping[str, Any]], invalid: bool
) -> dict[str, Any]:
    """Return `modelStatus`, or {} while there is nothing to report.

    `groups` is `status.groups` of the service. `invalid` is true if the spec has a problem.
    """
    engines = [role for role in progress if role.role.component != keys.ROUTER]
    if not engines:
        return {"transitionStatus": "InvalidSpec"} if invalid else {}
    total = sum(role.role.groups for role in engines)
    failed = [group for group in groups if group.get("phase") in FAILED]
    complete = all(role.is_complete for role in engines)
    serving = complete or all(role.ready_groups for role in engines)
    target = _target(total, complete, bool(failed), any(pod.node for pod in pods if pod.component != keys.ROUTER))
    out: dict[str, Any] = {
        "transitionStatus": "UpToDate" if complete else "BlockedByFailedLoad" if failed else "InProgress",
        "modelRevisionStates": {"activeModelState": "Loaded" if serving and total else target, "targetModelState": target},
        "modelCopies": {"totalCopies": sum(role.ready_groups for role in engines), "failedCopies": len(failed)},
    }
    if failed and (failure := failed[-1].get("lastFailure")):
        out["lastFailureInfo"] = _failure(failure, failed[-1])
    return out


def model_names(revisions: Iterable[Mapping[str, Any]], named: str) -> str:
    """Return the names of the models of several revisions, each once and joined by arrows; `named` if no name is known.

    `revisions` contains the stored data of each revision. For fine-tuned weights, the name of their base model is returned.
    """
    inputs = [data.get("inputs") or {} for data in revisions]
    found = [(of.get(BASE) or of.get("model") or {}).get("name") for of in inputs]
    return "→".join(dict.fromkeys(str(name) for name in found if name)) or named


def _target(total: int, complete: bool, failed: bool, started: bool) -> str:
    if not total:
        return "Standby"
    if complete:
        return "Loaded"
    return "FailedToLoad" if failed else "Loading" if started else "Pending"


def _failure(failure: Mapping[str, Any], group: Mapping[str, Any]) -> dict[str, Any]:
    fields = {
        "reason": "ModelLoadFailed",
        "message": failure.get("message") or failure.get("reason"),
        "location": failure.get("podName"),
        "modelRevisionName": group.get("revision"),
        "exitCode": failure.get("exitCode"),
        "time": failure.get("time"),
    }
    return {name: value for name, value in fields.items() if value is not None}
