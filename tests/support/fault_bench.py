"""Injects faults into the operator: it runs the operator behind a proxy, disturbs scenarios, and measures how many more
seconds, requests and writes they take.
"""

import os
import signal
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ome_local.kubeapi import ApiError, ApiUnreachable
from tests.support.proxy import Proxy
from tests.support.restarting_operator import CHILD, CLOCK
from tests.support.rig import Rig, probe_state
from tests.support.scenario import STEPS, ScenarioRun, State, well

UNDISTURBED = "undisturbed"
RIGHT_WITHIN_S = 30.0
QUIET_S = 2.5
"""Seconds without a write after which the operator has nothing left to do, because no time-out of a scenario is longer."""
LOOK_EVERY_S = 0.5
"""Seconds between two checks. Each check reads all objects from the API server, which is busy with the test."""
POKE_EVERY_S = 0.15

Poke = Callable[[int], None]
"""A function that is called repeatedly during a step, with the number of writes since the start of the step."""
Disturb = Callable[[int, ScenarioRun], AbstractContextManager[Poke | None]]
"""Disturbs a step, given by its number, inside the `with` block."""


class Cost(NamedTuple):
    """The cost of a step in seconds, requests and writes, or the difference to the same step without a fault. A field is
    None if there is no value to compare with.
    """

    seconds: float
    """Seconds from the start of the step, or from its last fault, until the state was correct. This is always the value of
    the step itself.
    """
    requests: int | None = None
    writes: int | None = None


@dataclass
class Account:
    """The faults that were injected, and the cost of the disturbed steps."""

    tried: Counter[str] = field(default_factory=Counter)
    costs: dict[str, list[Cost]] = field(default_factory=lambda: defaultdict(list))

    @contextmanager
    def fault(self, kind: str) -> Iterator[None]:
        """Count a fault, and measure the time until the end of the `with` block."""
        began = time.monotonic()
        yield
        self.tried[kind] += 1
        self.costs[kind].append(Cost(time.monotonic() - began))

    def lines(self) -> Iterator[str]:
        """Yield the lines of the printed table: median and maximum of each cost over all steps."""
        yield f"{'':<36}{'faults':>8}" + "".join(
            f"{head:>24}" for head in ("seconds until right", "requests above usual", "writes above usual")
        )
        for kind, costs in self.costs.items():
            columns = zip(*costs, strict=True)
            told = [_spread(column, digits) for column, digits in zip(columns, (1, 0, 0), strict=True)]
            yield f"{kind:<36}{self.tried[kind]:>8}" + "".join(f"{one:>24}" for one in told)


def _spread(column: tuple[Any, ...], digits: int) -> str:
    known = [one for one in column if one is not None]
    return f"{statistics.median(known):.{digits}f}, at most {max(known):.{digits}f}" if known else ""


class Field:
    """A cluster with an operator behind a proxy."""

    def __init__(self, rig: Rig, account: Account) -> None:
        self.rig, self.account = rig, account
        self.proxy = Proxy(rig.kubeconfig)
        rig.api = rig.cluster.api(RIGHT_WITHIN_S)  # on a busy machine, a request may have to wait
        root = rig.cluster.at.root
        self._clock, self._kubeconfig = root / "operator.clock", root / "proxied.kubeconfig"
        self.right: list[State] = []
        """The state after each step of an undisturbed run."""
        self.usual: list[Cost] = []
        """The cost of each undisturbed step."""
        self._lives = 0
        self._kind = ""
        self._struck = 0.0

    # --- operators --------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start the proxy, and replace the running operator by one behind the proxy."""
        self.proxy.start()
        self.rig.stop()
        self.clock(0)
        self._start(self.rig.process, kubeconfig=self.proxy.kubeconfig(self._kubeconfig))
        self.rig.wait_for_leader()

    def stop(self) -> None:
        """Stop the proxy and the operator."""
        self.rig.stop()
        self.proxy.stop()

    def _start(self, process: str, *words: str, kubeconfig: Path | None = None) -> int:
        """Start an operator, and return the port of its probes. If `kubeconfig` is None, the operator uses the one of the
        rig.
        """
        env = {CHILD: str(self._child(process)), CLOCK: str(self._clock)}
        self.rig.start(process, *words, program="tests.support.restarting_operator", kubeconfig=kubeconfig, env=env)
        return self.rig.port

    @contextmanager
    def second(self, *words: str) -> Iterator[Callable[[], str]]:
        """Run a second operator with these arguments, not behind the proxy. Yields a function that returns the state which
        the second operator reports.
        """
        port = self._start("second", *words)
        try:
            self.rig.wait("the second operator has started", lambda: probe_state(port) in ("standby", "leading"), 60)
            yield lambda: probe_state(port)
        finally:
            self.rig.stop(process="second")

    def _child(self, process: str) -> Path:
        return self.rig.cluster.at.root / f"{process}.child"

    def signal(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the operator behind the proxy. It is restarted if it ends."""
        os.kill(self.pid(), number)

    def pid(self) -> int:
        """Return the process ID of the operator behind the proxy."""
        return int(self._child(self.rig.process).read_text())

    def clock(self, off: float) -> None:
        """Set the operators' wall clock to this number of seconds off the true time."""
        self._clock.write_text(str(off))

    def struck(self) -> None:
        """Record that a fault happened now."""
        self.account.tried[self._kind] += 1
        self._struck = time.monotonic()

    # --- lives ------------------------------------------------------------------------------------------------------
    def live(self, *kinds: tuple[str, Disturb]) -> None:
        """Run a scenario in which each step except the last ones is disturbed by one of these faults. The state must be
        correct after each step, and the operator quiet at the end.
        """
        self._lives += 1
        namespace = f"life{self._lives}-{os.getpid()}"
        self.rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        try:
            life = ScenarioRun(self.rig, namespace)
            for number in range(len(STEPS)):
                self._kind, disturb = kinds[number] if number < len(kinds) else (UNDISTURBED, undisturbed)
                with disturb(number, life) as poke:
                    self._step(life, number, poke)
            self.quiet()
            wrong = difference(life.state(), self.right[-1])
            assert not wrong, f"the state changed after the last step, although it was correct then: {wrong}"
            assert life.foreign_versions() == life.theirs, "objects of other users changed"
        finally:
            for service in self.rig.all("InferenceService", namespace):
                self.rig.delete("InferenceService", namespace, service["metadata"]["name"])
            self.rig.delete("Namespace", "", namespace)

    def _step(self, life: ScenarioRun, number: int, poke: Poke | None) -> None:
        before, step = life.pod_starts(), STEPS[number]
        requests, writes = self.proxy.requests, self.proxy.writes
        self._struck = time.monotonic()
        step.act(life)
        right_at = self._learn(life, writes) if number == len(self.right) else self._wait_right(life, number, poke, writes)
        cost = Cost(right_at - self._struck, self.proxy.requests - requests, self.proxy.writes - writes)
        after = life.pod_starts()
        lost = {place for place, start in before.items() if not step.concerns(place) and after.get(place) != start}
        assert not lost, f"{self._kind}, {step.name}: pods were replaced that the step does not concern: {lost}"
        if number == len(self.usual):
            self.usual.append(cost)
        above = (here - usual for here, usual in zip(cost[1:], self.usual[number][1:], strict=True))
        self.account.costs[self._kind].append(Cost(cost.seconds, *above))

    def _learn(self, life: ScenarioRun, begun: int) -> float:
        """Wait until the operator has written nothing for QUIET_S seconds and all services are as their specs request.
        Record this state as the correct one, and return the time since when it has been unchanged. `begun` is the number of
        writes before the step. The caller passes it, because on a busy machine all writes of the step may be over before the
        first check.
        """
        state, writes, now = life.state(), begun, time.monotonic()
        since = wrote_at = now
        end = now + 3 * RIGHT_WITHIN_S
        while now < wrote_at + QUIET_S or writes == begun or not well(state):
            assert now < end, f"the state is wrong without any fault: {state}"
            time.sleep(LOOK_EVERY_S)
            fresh, now = life.state(), time.monotonic()
            if self.proxy.writes != writes:
                writes, wrote_at = self.proxy.writes, now
            if fresh != state:
                state, since = fresh, now
        self.right.append(state)
        return since

    def _wait_right(self, life: ScenarioRun, number: int, poke: Poke | None, begun: int) -> float:
        """Wait until the state is correct after a step, and return when that was. During the wait, `poke` is called
        repeatedly with the number of writes since the start of the step; `begun` is the number of writes before the step.
        """
        while True:
            struck = self._struck
            try:
                wrong = difference(life.state(), self.right[number])
            except (ApiUnreachable, ApiError, OSError) as error:
                wrong = {"API server": str(error)}
            now = time.monotonic()
            if poke is not None:
                poke(self.proxy.writes - begun)
            if not wrong and self._struck == struck:
                return now
            told = "\n".join(f"{what}: {how}" for what, how in wrong.items())
            assert now < struck + RIGHT_WITHIN_S, f"{self._kind}, {STEPS[number].name}: wrong after 30 s:\n{told}"
            while time.monotonic() < now + LOOK_EVERY_S:
                time.sleep(POKE_EVERY_S)
                if poke is not None:
                    poke(self.proxy.writes - begun)

    def quiet(self) -> None:
        """Wait until the operator writes nothing any more."""
        end = time.monotonic() + RIGHT_WITHIN_S
        while time.monotonic() < end:
            writes = self.proxy.writes
            time.sleep(QUIET_S)
            if self.proxy.writes == writes:
                return
        raise AssertionError(f"{self._kind}: the operator still writes after {RIGHT_WITHIN_S:.0f} s")


@contextmanager
def undisturbed(number: int, life: ScenarioRun) -> Iterator[None]:
    """A `Disturb` without any fault."""
    yield


def difference(state: State, right: State) -> dict[str, Any]:
    """Return the actual and the correct state of each object in which both differ; {} if they are equal."""
    names = sorted(state.keys() | right.keys())
    return {name: (state.get(name), right.get(name)) for name in names if state.get(name) != right.get(name)}
