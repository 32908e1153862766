"""`status.modelStatus`, as OME's users know it: whether the model is loaded, in how many copies, and what failed last.

A copy is a group of an engine; prefill and decode have copies of their own.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ome_operator import keys
from ome_operator.core.observed.objects import Pod
from ome_operator.core.status.progress import RoleProgress

FAILED = frozenset({"Failed"})
"""Phases of a group that is not brought back any more."""


def loaded_model(
    progress: Iterable[RoleProgress], pods: Iterable[Pod], groups: Sequence[Mapping[str, Any]], invalid: bool
) -> dict[str, Any]:
    """{} before there is a word to say. `groups`: as the status tells them. `invalid`: the spec has a problem."""
    engines = [role for role in progress if role.role.component != keys.ROUTER]
    if not engines:
        return {"transitionStatus": "InvalidSpec"} if invalid else {}
    total = sum(role.role.groups for role in engines)
    failed = [group for group in groups if group.get("phase") in FAILED]
    whole = all(role.complete for role in engines)
    serves = whole or all(role.ready_groups for role in engines)
    target = _target(total, whole, bool(failed), any(pod.node for pod in pods if pod.component != keys.ROUTER))
    out: dict[str, Any] = {
        "transitionStatus": "UpToDate" if whole else "BlockedByFailedLoad" if failed else "InProgress",
        "modelRevisionStates": {"activeModelState": "Loaded" if serves and total else target, "targetModelState": target},
        "modelCopies": {"totalCopies": sum(role.ready_groups for role in engines), "failedCopies": len(failed)},
    }
    if failed and (failure := failed[-1].get("lastFailure")):
        out["lastFailureInfo"] = _failure(failure, failed[-1])
    return out


def _target(total: int, whole: bool, failed: bool, begun: bool) -> str:
    if not total:
        return "Standby"
    if whole:
        return "Loaded"
    return "FailedToLoad" if failed else "Loading" if begun else "Pending"


def _failure(failure: Mapping[str, Any], group: Mapping[str, Any]) -> dict[str, Any]:
    said = {
        "reason": "ModelLoadFailed",
        "message": failure.get("message") or failure.get("reason"),
        "location": failure.get("podName"),
        "modelRevisionName": group.get("revision"),
        "exitCode": failure.get("exitCode"),
        "time": failure.get("time"),
    }
    return {name: value for name, value in said.items() if value is not None}
