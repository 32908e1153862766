"""Simulates the services that use one runtime, while the runtime is edited and a registry of waves decides which services
may use the edit.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from ome_operator.controllers.waves import WaveRegistry
from ome_operator.core.observed.objects import Epoch, Ref
from ome_operator.core.reconcile.plan import EditStand, EditState
from ome_operator.core.waves.terms import WaveTerms

RUNTIME = Ref("ClusterServingRuntime", "", "rt")
START = datetime(2026, 1, 1, tzinfo=UTC)


def service(number: int) -> Ref:
    return Ref("InferenceService", "team", f"s{number:04}")


class Fleet:
    """The services of a runtime, and the registry of waves, which lets a limited number of services use an edit of the
    runtime at the same time.
    """

    def __init__(self, size: int, terms: WaveTerms | None = None) -> None:
        self.terms, self.now = terms or WaveTerms(), START
        self.services = [service(number) for number in range(size)]
        self.epoch = Epoch("u", 1)
        self.whole: dict[Ref, datetime] = {}
        """Service that is complete with the current edit according to its status -> the time at which it became complete."""
        self.begun: set[Ref] = set()
        self.failed: set[Ref] = set()
        self.lacks: dict[Ref, datetime] = {}
        """Service -> the time since when it has been incomplete for a reason of its own, such as missing nodes."""
        self.said: dict[Ref, str] = {}
        self.restart()

    def restart(self) -> None:
        self.called: list[Ref] = []
        self.changed: list[Ref] = []
        self.registry = WaveRegistry(lambda _: self.terms, lambda: self.now, self.called.append, self.changed.append)
        self.registry.expect(self.services)

    def edit(self) -> None:
        self.epoch = Epoch("u", self.epoch.generation + 1)
        self.whole.clear()
        self.failed.clear()

    def hear(self, name: Ref) -> None:
        """Tell the registry the state of a service, as a reconciliation of that service does."""
        begun = name in self.begun
        if name in self.whole:
            stand = EditStand(self.epoch, EditState.DONE, self.whole[name])
        else:
            state = EditState.FAILED if name in self.failed else EditState.PENDING
            stand = EditStand(self.epoch, state, lacks=self.lacks.get(name))
            self.said[name] = "" if begun else self.registry.awaited_wave(name, {RUNTIME: self.epoch})
            if not self.said[name]:
                self.begun.add(name)
                begun = True
        self.registry.report(name, {RUNTIME: stand}, asks=name not in self.whole, begun=begun)

    def hear_all(self) -> None:
        for name in self.services:
            self.hear(name)
        self.work()

    def work(self) -> list[Ref]:
        """Reconcile all services, and return those that the registry permits to begin with the edit."""
        found = list(self.called)
        self.called.clear()
        for name in found:
            self.hear(name)
        return found

    def become_whole(self, *names: Ref) -> None:
        for name in names:
            self.begun.discard(name)
            self.failed.discard(name)
            self.whole[name] = self.now
            self.hear(name)
        self.work()

    def wait(self, **time: float) -> None:
        self.now += timedelta(**time)
        self.told()
        self.work()

    def told(self) -> dict[str, Any]:
        found, self.again = self.registry.rollout_status(RUNTIME, {"kept": True})
        return dict(found or {})
