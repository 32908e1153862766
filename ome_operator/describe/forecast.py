"""Predicts the effect of an edit on a service: which objects change, which groups restart, and why."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ome_operator.core.observed.objects import Ref
from ome_operator.core.waves.shared_edits import pending_edits
from ome_operator.describe.changes import Change, changes, count_changes
from ome_operator.describe.history import differences
from ome_operator.describe.outcome import RoleOutcome, TargetOutcome
from ome_operator.util.wording import count

MOST_REASONS = 3
"""Maximum number of reasons that a sentence lists."""


@dataclass(frozen=True)
class Forecast:
    """The effect of an edit on a service."""

    service: Ref
    sentence: str
    """The effect of the edit as a sentence, with its reason."""
    restarts: tuple[RoleOutcome, ...]
    """The roles in which every group restarts."""
    why: tuple[str, ...]
    """The differences between the inputs of the current and the new revision."""
    changes: tuple[Change, ...]
    before: str
    """Name of the current revision; "" if there is none."""
    after: str
    """Name of the new revision; "" if it cannot be rendered."""
    gpus: int = 0
    """Number of GPUs in the pods that restart."""
    interrupts: bool = False
    """Whether the service answers no requests until new pods are ready. With the strategy blueGreen, which keeps the old
    pods until then, the service would answer them."""
    shared: tuple[Ref, ...] = ()
    """The shared objects (runtime, model, accelerator classes) whose edits restart groups of the service. For such an
    edit, the service waits for its wave in the rollout of the edit (docs/rollouts.md)."""


def forecast(
    service: Ref, before: TargetOutcome | None, after: TargetOutcome | None, remark: str = "", held: str = ""
) -> Forecast | None:
    """Return the effect of an edit; None if the edit has no effect. `before` is the outcome of the service before the edit,
    and `after` its outcome after the edit. An outcome is None if the service does not exist.

    remark      A sentence about the rollout, or about pods that the edit adds.
    held        The target revision before the edit, if it has no groups because its rollout has not begun. In this case
                `before` is the outcome of the revision that has groups.
    """
    made = changes(before, after) if after is None or after.manifests or not before else ()
    old, new = before or _NOTHING, after or _NOTHING
    if not made and old.problems == new.problems and old.revision == new.revision and not held:
        return None
    rolls = bool(old.revision and new.revision and old.revision != new.revision and new.manifests)
    restarts = tuple(role for role in old.roles if role.groups) if rolls else ()
    why = tuple(differences(old.inputs, new.inputs)) if rolls else ()
    sentence = _sentence(before, after, restarts, why, made, held)
    if held:
        sentence += f"; the rollout of revision {held}, which has not begun, is dropped"
    if remark:
        sentence += f". {remark}"
    if after and after.advice and after.advice != old.advice:
        sentence += f". Note: {after.advice}"
    interrupts = bool(restarts) and _same_roles(old, new) and _interrupts(new)
    shared = tuple(_shared(old, new)) if restarts else ()
    return Forecast(service, sentence, restarts, why, made, old.revision, new.revision, _sum(restarts), interrupts, shared)


_NOTHING = TargetOutcome("", {}, (), (), ())


def _shared(old: TargetOutcome, new: TargetOutcome) -> Iterable[Ref]:
    """Return the shared objects whose edits distinguish two revisions."""
    data = {each.revision: {"inputs": each.inputs} for each in (old, new)}
    return pending_edits(new.revision, [old.revision], data)


def _sentence(
    before: TargetOutcome | None,
    after: TargetOutcome | None,
    restarts: tuple[RoleOutcome, ...],
    why: tuple[str, ...],
    made: tuple[Change, ...],
    held: str,
) -> str:
    if after is None:
        return f"it would be deleted, and {count_changes(made)}" if made else "it would be deleted"
    if not after.manifests:
        problem = "; ".join(after.problems)
        rest = "; the running revision stays unchanged" if before and before.manifests else ""
        return f"it cannot start: {problem}{rest}"
    if before is None or not before.manifests:
        return f"new: revision {after.revision} with {_listed(after.roles)}{_in_all(after.roles)}; {count_changes(made)}"
    scaled = _scaled(before.roles, after.roles)
    if before.revision == after.revision:
        router = ["the router's pods are replaced"] if _router(before) != _router(after) else []
        return "; ".join(item for item in [_stays(before, after, held), *router, *scaled, count_changes(made)] if item)
    because = "; ".join(why[:MOST_REASONS]) + (f"; and {len(why) - MOST_REASONS} more" if len(why) > MOST_REASONS else "")
    what = "no running pod would restart"
    if restarts:
        verb = "restarts" if len(restarts) == 1 else "restart"
        what = f"{_listed(restarts)} {verb}{_in_all(restarts)}{_how(before, after)}"
    message = f"revision {before.revision} → {after.revision}: {what}" + (f". Why: {because}" if because else "")
    return "; ".join([message, *scaled])


def _stays(before: TargetOutcome, after: TargetOutcome, held: str) -> str:
    """Return the beginning of a sentence about an edit after which the same revision runs as before. `held` has the same
    meaning as in `forecast`.
    """
    if after.refused:
        return (
            f"the operator would refuse this edit, so nothing is rolled out and revision {after.revision} stays: "
            f"{after.refused}"
        )
    if held or before.refused:
        return f"revision {after.revision} is running already, so no GPU pod restarts"
    return "the edit makes no new revision, so no GPU pod restarts"


def _how(before: TargetOutcome, after: TargetOutcome) -> str:
    """Return the end of a sentence that begins with the roles that restart. It describes the steps of the rollout, the GPUs
    that the rollout needs, and whether the service keeps serving (docs/rollouts.md).
    """
    bounds, roles = after.bounds, [role for role in after.roles if role.groups]
    if bounds.alone or not _same_roles(before, after):
        return ": the old pods end before the new pods start, so the service answers no requests meanwhile"
    if bounds.whole:
        needed = _gpus(_sum(roles), ", with ", " more until the old pods are removed")
        return f": the new pods start next to the old ones{needed}"
    if _interrupts(after):
        together = ", all at the same time" if sum(role.groups for role in before.roles) > 1 else ""
        return f"{together}, so the service answers no requests meanwhile"
    above, missing = ({item: part.get(item.component, 0) for item in roles} for part in (bounds.surge, bounds.unavailable))
    more = _gpus(sum(above[item] * item.gpus for item in roles), ", with ", " more meanwhile")
    sizes = [min(above[item] + missing[item], item.groups) for item in roles]
    steps = [f"{size} of {count(item.groups, 'group')}" for size, item in zip(sizes, roles, strict=True)]
    if len(roles) > 1:
        steps = [f"{item.title} {step}" for item, step in zip(roles, steps, strict=True)]
    number = max(-(-item.groups // size) for size, item in zip(sizes, roles, strict=True))
    order = f" in {number} steps, the group with the highest number first" if number > 1 else ""
    return f", {' and '.join(steps)} at a time{order}{more}"


def _same_roles(before: TargetOutcome, after: TargetOutcome) -> bool:
    """Return whether two revisions have the same roles. If the roles differ, the strategy of the rollout is always
    `recreate`.
    """
    return {role.component for role in before.roles} == {role.component for role in after.roles}


def _interrupts(after: TargetOutcome) -> bool:
    """Return whether the strategy removes all groups of a role before new groups of the role serve."""
    return after.bounds.interrupts_serving({role.component: role.groups for role in after.roles})


def _router(item: TargetOutcome) -> Any:
    """Return the pod template of the routers; None if there are no routers."""
    return next((each["spec"]["template"] for each in item.manifests if each["kind"] == "Deployment"), None)


def _listed(roles: Iterable[RoleOutcome]) -> str:
    """Return a text that lists roles, such as `prefill (1 group of 4 pods, 32 GPUs) and decode (…)`."""
    return " and ".join(
        f"{item.title} ({count(item.groups, 'group')} of {count(item.size, 'pod')}{_gpus(item.groups * item.gpus, ', ')})"
        for item in roles
    )


def _in_all(roles: Sequence[RoleOutcome]) -> str:
    return _gpus(_sum(roles), ", ", " in all") if len(roles) > 1 else ""


def _sum(roles: Iterable[RoleOutcome]) -> int:
    """Return the number of GPUs in all groups of several roles."""
    return sum(item.groups * item.gpus for item in roles)


def _gpus(number: int, before: str = "", behind: str = "") -> str:
    return f"{before}{count(number, 'GPU')}{behind}" if number else ""


def _scaled(old: Iterable[RoleOutcome], new: Iterable[RoleOutcome]) -> list[str]:
    """Return sentences that state which pods are started or removed because the number of groups changes."""
    before = {role.component: role for role in old}
    messages = []
    for role in new:
        was = before[role.component].groups if role.component in before else role.groups
        if (more := role.groups - was) != 0:
            number = abs(more) * role.size
            verb = ("start" if more > 0 else "end") + ("s" if number == 1 else "")
            pods = f"{count(number, 'pod')}{_gpus(abs(more) * role.gpus, ' with ')} {verb}"
            pods += "" if role.groups else ", so the service answers no requests until it is scaled up"
            messages.append(f"{role.title} {was} → {count(role.groups, 'group')}: {pods}")
    return messages
