"""Compute the status of a shared object about the waves of its last edit, and the Events about changes of this status."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ome_operator import quantity
from ome_operator.core.observed.objects import Ref
from ome_operator.core.reconcile.plan import Event
from ome_operator.core.waves.terms import CurrentWave

LISTED = 10
"""Number of failed services that a status names."""
ROLLING, BAKING, STOPPED, COMPLETE = "Rolling", "Baking", "Stopped", "Complete"
BEGINS, WHOLE, STOPS = "WaveBegins", "WaveWhole", "WaveStopped"
"""Reasons of the Events about a wave: it begins, it is complete, it stops."""


class StateCounts(NamedTuple):
    """The number of services in each state of the rollout of an edit. Only services that the edit changes, or has changed,
    are counted.
    """

    done: int
    rolling: int
    waiting: int
    failed: tuple[Ref, ...]
    holding: tuple[Ref, ...] = ()
    """Names of services that are being updated, at most `LISTED` of them. Services whose pods wait for a volume, a quota or
    a node come first."""

    @property
    def total_services(self) -> int:
        """The number of services in all states."""
        return self.done + self.rolling + self.waiting + len(self.failed)


def status(generation: int, turn: CurrentWave, tally: StateCounts) -> dict[str, Any]:
    """Return `status.rollout` of a shared object, which describes the waves of its last edit."""
    named, holding = _named(sorted(tally.failed)[:LISTED]), _named(tally.holding)
    return {
        "generation": generation,
        "state": _state(turn, tally),
        "wave": turn.wave,
        "waves": turn.of,
        "size": turn.size,
        "services": tally.total_services,
        "done": tally.done,
        "rolling": tally.rolling,
        "waiting": tally.waiting,
        "failed": len(tally.failed),
        **({"failedServices": named} if named else {}),
        **({"holdingServices": holding} if holding else {}),
        **({"bakesUntil": quantity.rfc3339(turn.until)} if turn.until is not None else {}),
    }


def _named(services: Iterable[Ref]) -> list[dict[str, str]]:
    return [{"namespace": ref.namespace, "name": ref.name} for ref in services]


def _state(turn: CurrentWave, tally: StateCounts) -> str:
    if tally.failed:
        return STOPPED
    if tally.done == tally.total_services:
        return COMPLETE
    return ROLLING if turn.until is None else BAKING


def steps(rollout: Mapping[str, Any] | None) -> tuple[Any, ...]:
    """Return the values of those fields of `status.rollout` that are not counts. A change of any of them is written at
    once.
    """
    found = rollout or {}
    return tuple(found.get(name) for name in ("generation", "state", "wave", "waves", "failedServices"))


def events(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> tuple[Event, ...]:
    """Return the Events for the difference between two statuses of a shared object. A status is None if the object has
    none.
    """
    if after is None or steps(before) == steps(after):
        return ()
    same = before is not None and before.get("generation") == after["generation"]
    was = (before or {}) if same else {}
    found: list[Event] = []
    if after["wave"] > was.get("wave", 0) and after["rolling"] + after["done"] + after["failed"]:
        found.append(Event("Normal", BEGINS, f"{_wave(after)} begins: it covers the services up to number {_of(after)}"))
    if after["state"] == STOPPED and was.get("failedServices") != after["failedServices"]:
        names = _names(after["failedServices"])
        message = f"{_wave(after)} stops: {names} did not complete the rollout of this edit, so no other service starts it"
        found.append(
            Event(
                "Warning",
                STOPS,
                (f"{message}. Correct the cause that the status of the failed service names, or edit this object again"),
            )
        )
    elif after["state"] == BAKING and was.get("state") != BAKING:
        found.append(Event("Normal", WHOLE, f"{_wave(after)} is complete; the next wave begins at {after['bakesUntil']}"))
    elif after["state"] == COMPLETE and was.get("state") != COMPLETE:
        found.append(Event("Normal", WHOLE, f"{_wave(after)} is complete: all {after['services']} services have this edit"))
    return tuple(found)


def _wave(rollout: Mapping[str, Any]) -> str:
    return f"wave {rollout['wave']} of {rollout['waves']} of generation {rollout['generation']}"


def _of(rollout: Mapping[str, Any]) -> str:
    return f"{rollout['size']} of {rollout['services']}"


def _names(services: Iterable[Mapping[str, str]]) -> str:
    return ", ".join(f"{each['namespace']}/{each['name']}" for each in services)
