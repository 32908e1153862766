"""What an edit would do to a service, before it is done: which objects change, which groups restart, and why."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ome_operator.core.observed.objects import Ref
from ome_operator.describe.changes import Change, changes, words
from ome_operator.describe.history import differences
from ome_operator.describe.outcome import Outcome, RoleOutcome
from ome_operator.describe.text import count

SAID = 3
"""Reasons that one sentence gives."""


@dataclass(frozen=True)
class Forecast:
    """What would happen to one service."""

    service: Ref
    sentence: str
    """In plain words, with the reason."""
    restarts: tuple[RoleOutcome, ...]
    """Roles whose every group restarts."""
    why: tuple[str, ...]
    """Every input of the revision that differs."""
    changes: tuple[Change, ...]
    before: str
    """Revision now, "" for none."""
    after: str
    """Revision then, "" when it cannot be rendered."""
    gpus: int = 0
    """GPUs whose pods restart."""


def forecast(service: Ref, before: Outcome | None, after: Outcome | None, waits: str = "") -> Forecast | None:
    """From where it is going to where it would go; None when that is the same.

    `waits`: what the new revision would have to wait for, as a sentence.
    """
    made = changes(before, after) if after is None or after.manifests or not before else ()
    old, new = before or _NOTHING, after or _NOTHING
    if not made and old.problems == new.problems and old.revision == new.revision:
        return None
    rolls = bool(old.revision and new.revision and old.revision != new.revision and new.manifests)
    restarts = tuple(role for role in old.roles if role.groups) if rolls else ()
    why = tuple(differences(old.inputs, new.inputs)) if rolls else ()
    said = _sentence(before, after, restarts, why, made)
    if waits and rolls:
        said += f". But {waits}"
    if after and after.advice and after.advice != old.advice:
        said += f". To know: {after.advice}"
    return Forecast(service, said, restarts, why, made, old.revision, new.revision, _sum(restarts))


_NOTHING = Outcome("", {}, (), (), ())


def _sentence(
    before: Outcome | None,
    after: Outcome | None,
    restarts: tuple[RoleOutcome, ...],
    why: tuple[str, ...],
    made: tuple[Change, ...],
) -> str:
    if after is None:
        return f"it would be deleted, and {words(made)}" if made else "it would be deleted"
    if not after.manifests:
        problem = "; ".join(after.problems)
        rest = "; what runs stays as it is" if before and before.manifests else ""
        return f"it cannot start: {problem}{rest}"
    if before is None or not before.manifests:
        return f"new: revision {after.revision} with {_listed(after.roles)}{_in_all(after.roles)}; {words(made)}"
    scaled = _scaled(before.roles, after.roles)
    if before.revision == after.revision:
        router = ["the router's pods are replaced"] if _router(before) != _router(after) else []
        return "; ".join(one for one in ["no new revision, no GPU pod restarts", *router, *scaled, words(made)] if one)
    because = "; ".join(why[:SAID]) + (f"; and {len(why) - SAID} more" if len(why) > SAID else "")
    what = "nothing runs that would restart"
    if restarts:
        what = f"{_listed(restarts)} restart{_in_all(restarts)}, {_how(before, after)}"
    said = f"revision {before.revision} → {after.revision}: {what}" + (f". Why: {because}" if because else "")
    return "; ".join([said, *scaled])


def _how(before: Outcome, after: Outcome) -> str:
    """In which steps, what that takes, and whether something serves meanwhile (docs/rollouts.md)."""
    bounds, roles = after.bounds, [role for role in after.roles if role.groups]
    if bounds.alone or {role.component for role in before.roles} != {role.component for role in after.roles}:
        return "the old ones before the new ones start: nothing serves meanwhile"
    if bounds.whole:
        return f"side by side{_gpus(_sum(roles), ', with ', ' more until the old ones go')}"
    above, missing = ({one: part.get(one.component, 0) for one in roles} for part in (bounds.surge, bounds.unavailable))
    if any(missing[one] >= one.groups and not above[one] for one in roles):
        return "at once: nothing serves meanwhile"
    more = _gpus(sum(above[one] * one.gpus for one in roles), ", with ", " more meanwhile")
    steps = (f"{one.title} {min(above[one] + missing[one], one.groups)} of {one.groups}" for one in roles)
    return f"of {' and '.join(steps)} at a time{more}"


def _router(one: Outcome) -> Any:
    """The pods of its routers."""
    return next((each["spec"]["template"] for each in one.manifests if each["kind"] == "Deployment"), None)


def _listed(roles: Iterable[RoleOutcome]) -> str:
    """`prefill (1 group of 4 pods, 32 GPUs) and decode (…)`."""
    return " and ".join(
        f"{one.title} ({count(one.groups, 'group')} of {count(one.size, 'pod')}{_gpus(one.groups * one.gpus, ', ')})"
        for one in roles
    )


def _in_all(roles: Sequence[RoleOutcome]) -> str:
    return _gpus(_sum(roles), ", ", " in all") if len(roles) > 1 else ""


def _sum(roles: Iterable[RoleOutcome]) -> int:
    """GPUs of all groups."""
    return sum(one.groups * one.gpus for one in roles)


def _gpus(number: int, before: str = "", behind: str = "") -> str:
    return f"{before}{count(number, 'GPU')}{behind}" if number else ""


def _scaled(old: Iterable[RoleOutcome], new: Iterable[RoleOutcome]) -> list[str]:
    """What starts or ends because there are more or fewer groups."""
    before = {role.component: role for role in old}
    said = []
    for role in new:
        was = before[role.component].groups if role.component in before else role.groups
        if (more := role.groups - was) != 0:
            verb = "start" if more > 0 else "end"
            pods = f"{count(abs(more) * role.size, 'pod')}{_gpus(abs(more) * role.gpus, ' with ')} {verb}"
            said.append(f"{role.title} {was} → {count(role.groups, 'group')}: {pods}")
    return said
