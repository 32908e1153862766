"""Compute the state of a service that has zero groups of a role and therefore cannot serve: when a request wakes it (creates
its groups again), and how long it then keeps its groups (docs/scaling.md, "Zero and back").

The state is the field `zero` of the status. The functions are pure. An invalid time in the state counts as missing.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from ome_operator import keys, names, quantity
from ome_operator.api import InferenceService
from ome_operator.core.observed.arrivals import NO_ARRIVALS, Arrivals
from ome_operator.core.observed.objects import Child
from ome_operator.core.observed.telemetry import is_fresh
from ome_operator.core.reconcile.plan import Patch
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.resolve.scaling import ReplicaPolicy

FIELD = "zero"
MINIMUM_UP = 600.0
"""Seconds for which a service that a request has woken keeps its groups, from the time at which it serves."""
LONGEST_START = 3600.0
"""Seconds for which the groups of a service that a request has woken are kept although the service does not serve yet."""
RECHECK = 10.0
"""Seconds between two passes that look for the first token after a wake, because no event reports the token."""
REQUEST, SCALE = "Request", "Scale"
"""What wakes a service: a request, or the change of a RoleScale by a person or an autoscaler."""
ROLES = (keys.ENGINE, keys.DECODER)


class ZeroFacts(NamedTuple):
    """The facts from which the field `zero` of the status is computed in a pass."""

    before: Mapping[str, Any]
    """The stored state; {} if the service never had a role without groups."""
    groups: Mapping[str, int]
    """Desired number of groups by component, without routers."""
    former: Mapping[str, int]
    """Desired number of groups by component in the previous pass, from the stored status."""
    now: datetime
    serves: bool
    """Whether requests are answered by engines now."""
    arrivals: Arrivals = NO_ARRIVALS
    wakes: bool = False
    """Whether an arriving request may wake the service."""


def stored_zero(service: InferenceService) -> Mapping[str, Any]:
    """Return the field `zero` of the stored status; {} if there is none."""
    found = service.status.get(FIELD)
    return found if isinstance(found, Mapping) else {}


def asks_to_wake(service: InferenceService) -> bool:
    """Return whether the spec requests that an arriving request wakes the service."""
    policy = service.spec.scaling_policy
    return policy is not None and policy.wake_on_request is True


def facts(snapshot: Snapshot, groups: Mapping[str, int], *, serves: bool) -> ZeroFacts:
    """Return the facts from which the field `zero` of the status is computed in this pass. Only roles that have a RoleScale
    can be woken. `serves` states whether requests are answered by engines now.
    """
    service = snapshot.service
    former = {role: _former_groups(service, role) for role in ROLES}
    scaled = all(role_scale(snapshot, role) is not None for role in ROLES if groups.get(role) == 0)
    return ZeroFacts(
        before=stored_zero(service),
        groups={role: groups[role] for role in ROLES if role in groups},
        former=former,
        now=snapshot.now,
        serves=serves,
        arrivals=snapshot.observed.arrivals,
        wakes=asks_to_wake(service) and scaled,
    )


def _former_groups(service: InferenceService, component: str) -> int:
    """Return the desired number of groups of a component in the previous pass, from the stored status; 0 if unknown."""
    components = service.status.get("components")
    stored = components.get(component) if isinstance(components, Mapping) else None
    number = stored.get("replicas") if isinstance(stored, Mapping) else None
    return number if type(number) is int and number > 0 else 0


def advice(snapshot: Snapshot, component: str, groups: int, asked: int | None, *, scaled: bool) -> list[str]:
    """Return a sentence if the groups of a component are kept although its RoleScale requests no groups, or if a request
    cannot wake the component.

    `asked` is the number in the RoleScale; None if the component has no RoleScale. `scaled` states whether the component
    has a RoleScale, or is about to get one.
    """
    service = snapshot.service
    if component not in ROLES or not asks_to_wake(service):
        return []
    if groups and asked == 0:
        until = kept_until(stored_zero(service), wakes=True, now=snapshot.now)
        when = "" if until is None else f" until {_text(until)}"
        return [
            f"RoleScale {names.component(service.name, component)} asks for 0 groups, but a request has woken the service, "
            f"so {groups} are kept{when}: set spec.scalingPolicy.wakeOnRequest to false to remove them"
        ]
    if service.spec.router is None:
        return [
            "spec.scalingPolicy.wakeOnRequest has no effect, because only the registry of a router detects requests: add a "
            "router"
        ]
    if not groups and not scaled:
        return [
            f"spec.scalingPolicy.wakeOnRequest cannot wake {component}, which has no RoleScale: set "
            f"spec.{component}.maxReplicas to more than its minReplicas"
        ]
    return []


def never_zero(service: InferenceService, policies: Mapping[str, ReplicaPolicy]) -> list[str]:
    """Return a sentence if requests may wake a service that never has zero groups."""
    if not asks_to_wake(service) or any(policies[role].low == 0 for role in ROLES if role in policies):
        return []
    return [
        "spec.scalingPolicy.wakeOnRequest has no effect, because no role can be scaled to zero: set minReplicas of "
        f"spec.{keys.ENGINE} or spec.{keys.DECODER} to 0"
    ]


def is_zero(groups: Mapping[str, int]) -> bool:
    """Return whether a role has no group, so that nothing can serve: prefill cannot serve without decode."""
    return any(groups.get(role) == 0 for role in ROLES)


def state(facts: ZeroFacts) -> dict[str, Any]:
    """Return the new field `zero` of the status; {} if the service never had a role without groups."""
    if is_zero(facts.groups):
        return _woken(facts) if is_woken(facts) else _zero(facts)
    if not facts.before:
        return {}
    found = {"groups": dict(facts.before.get("groups") or {}), "wake": dict(facts.before.get("wake") or {})}
    if facts.before.get("since") is not None:  # somebody has changed the RoleScales
        found["wake"] = _wake(facts.now, SCALE)
    if found["wake"]:
        found["wake"] |= _seconds(found["wake"], facts)
    return {name: value for name, value in found.items() if value}


def _zero(facts: ZeroFacts) -> dict[str, Any]:
    known = facts.before.get("since") is not None
    since = facts.before["since"] if known else _text(facts.now)
    kept = facts.before.get("groups") or {}
    last = {role: count for role, count in facts.former.items() if role in facts.groups and count}
    found = {"since": since, "groups": {**last, **kept} if known else {**kept, **last}, "wake": facts.before.get("wake")}
    return {name: value for name, value in found.items() if value}


def _woken(facts: ZeroFacts) -> dict[str, Any]:
    found = _zero(facts)
    del found["since"]
    return {**found, "wake": _wake(facts.now, REQUEST)}


def is_woken(facts: ZeroFacts) -> bool:
    """Return whether a request that has arrived wakes the service in this pass. The request must have arrived after the
    service lost its groups, and at most `telemetry.STALE` seconds ago. An older request has been answered with 503, and its
    client is expected to repeat it.
    """
    since, arrived = _moment(facts.before.get("since"), facts.now), facts.arrivals.unserved_at
    if not facts.wakes or since is None or arrived is None or not is_zero(facts.groups):
        return False
    return arrived > since.timestamp() and is_fresh(arrived, facts.now.timestamp())


def kept_groups(before: Mapping[str, Any], component: str, *, wakes: bool, now: datetime) -> int:
    """Return the number of groups that a component keeps although its RoleScale requests no groups, because a request has
    woken the service; 0 if there is no such number. `before` is the stored field `zero` of the status, and `wakes`
    states whether requests may wake the service.
    """
    until = kept_until(before, wakes=wakes, now=now)
    return groups_when_woken(before, component) if component in ROLES and until is not None and until > now else 0


def kept_until(before: Mapping[str, Any], *, wakes: bool, now: datetime) -> datetime | None:
    """Return the time until which a service that a request has woken keeps its groups; None if no request has woken the
    service. `before` and `wakes` have the same meaning as in `kept_groups`.
    """
    wake = before.get("wake") or {}
    began = _moment(wake.get("time"), now)
    if not wakes or before.get("since") is not None or wake.get("by") != REQUEST or began is None:
        return None
    served = wake.get("servedAfterSeconds")
    if isinstance(served, int | float) and 0 <= served <= quantity.LONGEST:  # users can edit the status
        return began + timedelta(seconds=served + MINIMUM_UP)
    return began + timedelta(seconds=LONGEST_START)


def groups_when_woken(before: Mapping[str, Any], component: str) -> int:
    """Return the number of groups that a component gets when it is woken: the last number of its groups in the stored field
    `zero` (`before`), but at least 1.
    """
    return max(1, int((before.get("groups") or {}).get(component) or 0))


def _seconds(wake: Mapping[str, Any], facts: ZeroFacts) -> dict[str, float]:
    """Return the seconds from the wake until the service served, and until an engine reported generated tokens, by the name
    of the field of the status. A duration that is not known yet is left out.
    """
    began = _moment(wake.get("time"), facts.now)
    found = {name: wake[name] for name in ("servedAfterSeconds", "firstTokenAfterSeconds") if name in wake}
    if began is None:
        return found
    if "servedAfterSeconds" not in found and facts.serves:
        found["servedAfterSeconds"] = _between(began, facts.now.timestamp())
    token = facts.arrivals.token_at
    waits = "servedAfterSeconds" in found and "firstTokenAfterSeconds" not in found
    if waits and token is not None and token > began.timestamp():
        found["firstTokenAfterSeconds"] = _between(began, token)
    return found


def seconds_until_change(found: Mapping[str, Any], now: datetime) -> float | None:
    """Return the seconds until the field `zero` of the status may change without an event; None if only an event changes it.
    `found` is the present value of the field.
    """
    wake = found.get("wake") or {}
    began = _moment(wake.get("time"), now)
    if began is None or found.get("since") is not None:
        return None
    waits = []
    if "firstTokenAfterSeconds" not in wake and "servedAfterSeconds" in wake and _passed(began, now) < LONGEST_START:
        waits.append(RECHECK)
    until = kept_until(found, wakes=True, now=now)
    if until is not None and until > now:
        waits.append((until - now).total_seconds() + 1)
    return min(waits, default=None)


def wake_patches(snapshot: Snapshot, found: Mapping[str, Any], groups: Mapping[str, int]) -> tuple[Patch, ...]:
    """Return the changes of the RoleScales of a service that a request has woken in this pass; () if none has. `found` is
    the new field `zero` of the status, and `groups` is the number of desired groups by component.

    Each patch contains the resourceVersion of its RoleScale, so a number that somebody else has written since the RoleScale
    was read is not overwritten.
    """
    # if `since` is absent, the groups are already about to come back
    if not found or "since" in found or not is_zero(groups):
        return ()
    scales = {role: scale for role in ROLES if groups.get(role) == 0 and (scale := role_scale(snapshot, role)) is not None}
    written = {
        role: written_by_wake(scale.generation, scale.replicas, groups_when_woken(found, role))
        for role, scale in scales.items()
    }
    for role, scale in scales.items():
        written[role]["metadata"]["resourceVersion"] = str(scale.version)
    return tuple(Patch("RoleScale", scale.name, scale.uid, written[role]) for role, scale in scales.items())


def written_by_wake(generation: int, present: int, number: int) -> dict[str, Any]:
    """Return the patch of a RoleScale with which a wake sets its number. An annotation stores the generation that the patch
    produces, so that the number is not mistaken for a number that a person set, and the class Demand can decide again.

    `generation` is the present generation of the RoleScale. `present` is its present number; if `number` is the same, the
    patch does not increase the generation.
    """
    annotations = {keys.WAKE_GENERATION: str(generation + (number != present))}
    return {"metadata": {"annotations": annotations}, "spec": {"replicas": number}}


def role_scale(snapshot: Snapshot, component: str) -> Child | None:
    """Return the RoleScale of a component if the service controls it; otherwise None."""
    found = snapshot.controlled("RoleScale", names.component(snapshot.service.name, component))
    return found if found is not None and not found.deleting else None


def _wake(now: datetime, by: str) -> dict[str, Any]:
    return {"time": _text(now), "by": by}


def _between(began: datetime, at: float) -> float:
    return round(max(0.0, at - began.timestamp()), 1)


def _passed(began: datetime, now: datetime) -> float:
    return (now - began).total_seconds()


def _moment(text: Any, now: datetime) -> datetime | None:
    return quantity.moment(text, now) if isinstance(text, str) else None


def _text(now: datetime) -> str:
    return now.isoformat(timespec="seconds")
