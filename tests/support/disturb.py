"""The kinds of faults that tests inject into a running operator. Each function returns a `Disturb`, a context manager that
causes the faults while a step of a scenario runs (`fault_bench.Field.live`).
"""

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ome_local.kubeapi import ApiError
from tests.support.fault_bench import Disturb, Field, Poke
from tests.support.proxy import Answer, Cut, Sent, Unheard, Verdict
from tests.support.scenario import MINE, ScenarioRun

WRITE_FAULTS: tuple[Verdict, ...] = (
    Answer(404, "NotFound"),  # a name that no object has
    Answer(409, "Conflict"),
    Answer(429, "TooManyRequests", retry_after=1),
    Answer(500, "InternalError"),
    Answer(503, "ServiceUnavailable"),
    Answer(504, "Timeout"),
    Cut(),
    Unheard(),
)
READ_FAULTS = tuple(one for one in WRITE_FAULTS[2:] if not isinstance(one, Unheard))
HOUR = 3600.0
SPOILED: dict[str, dict[str, Any]] = {
    "Service": {"spec": {"selector": {"app": "stranger"}}},
    "PodDisruptionBudget": {"spec": {"maxUnavailable": "50%"}},
    "Deployment": {"metadata": {"labels": {"ome.io/managed-by": None}}},
    "StatefulSet": {"spec": {"template": {"spec": {"automountServiceAccountToken": True}}}},
    "Role": {"rules": []},
    "RoleBinding": {"subjects": []},
    "ServiceAccount": {"metadata": {"labels": {"ome.io/inferenceservice": "another"}}},
}
"""Merge patches with which a foreign user changes fields that the operator applies. Fields that the operator does not apply
are not patched, because the operator leaves them as they are.
"""


class _Killer:
    """Decides for the proxy about each request, and kills the operator at the n-th write, or at the n-th request of any
    kind, for a random n.
    """

    def __init__(self, field: Field, chance: random.Random, number: int, kills: int) -> None:
        self._field, self._chance, self._usual, self._left = field, chance, field.usual[number], kills
        self._aim()

    def _aim(self) -> None:
        """Choose the number n of the request at which the fault happens. It is in the first half of the requests that a step
        usually sends, because the fault has to happen before the step is over.
        """
        self._any = self._chance.random() < 0.3
        usual = (self._usual.requests if self._any else self._usual.writes) or 0
        self._after = self._chance.randint(1, max(1, usual // 2))

    def judge(self, sent: Sent) -> Verdict:
        """Kill the operator at the n-th request, either before the request arrives or before it is answered."""
        if not self._left or not (self._any or sent.is_write):
            return None
        self._after -= 1
        if self._after:  # n is below zero while a strike waits for the response of its request
            return None
        if self._any or self._chance.random() < 0.5:
            self.strike()
            return Cut()
        return Unheard(self.strike)

    def strike(self) -> None:
        """Kill the operator, record that a fault happened, and choose the request of the next fault."""
        self._field.signal()
        self._field.struck()
        self._left -= 1
        self._aim()


def kills(field: Field, chance: random.Random, of_a_step: int) -> Disturb:
    """Return a disturbance that kills the operator before or after one of its writes, or at any of its requests, and
    restarts it at once. `of_a_step` is the largest number of kills in a step.
    """

    @contextmanager
    def disturb(number: int, life: ScenarioRun) -> Iterator[None]:
        killer = _Killer(field, chance, number, of_a_step)
        with field.proxy.judging(killer.judge):
            yield

    return disturb


def errors(field: Field, chance: random.Random, of_a_step: int) -> Disturb:
    """Return a disturbance that lets a share of the requests fail: with 404, with a conflict, with 429 or 5xx, or without a
    response although the request was carried out. `of_a_step` is the largest number of faults of a step.
    """

    @contextmanager
    def disturb(number: int, life: ScenarioRun) -> Iterator[None]:
        left = of_a_step

        def judge(sent: Sent) -> Verdict:
            nonlocal left
            if sent.lease or not left or chance.random() > 0.3:
                return None
            left -= 1
            field.struck()
            return chance.choice(WRITE_FAULTS if sent.is_write else READ_FAULTS)

        with field.proxy.judging(judge):
            yield

    return disturb


def watches(field: Field, chance: random.Random, of_a_step: int) -> Disturb:
    """Return a disturbance in which watches are cut, expire, are delayed, or lose events. `of_a_step` is the number of
    faults of a step.
    """
    ways: tuple[Callable[[], None], ...] = (
        field.proxy.cut,
        field.proxy.expire,
        lambda: field.proxy.hold_events(1.0),
        lambda: field.proxy.hold_events(1.5, lose=True),
    )

    @contextmanager
    def disturb(number: int, life: ScenarioRun) -> Iterator[Poke]:
        yield _in_turn(field, [(writes, chance.choice(ways)) for writes in _moments(field, chance, number, of_a_step)])

    return disturb


def killed_server(field: Field, chance: random.Random) -> Disturb:
    """The API server is killed and restarted, together with its controllers.

    Without a restart the controllers' back-offs would count: an informer whose server was killed three times in two minutes
    retries only after 20 s.
    """

    def kill() -> None:
        for name in ("apiserver", "controller-manager", "scheduler", "kwok"):
            field.rig.cluster.restart(name, signal.SIGKILL)

    return _once(field, chance, kill)


def paused_etcd(field: Field, chance: random.Random) -> Disturb:
    """Etcd is paused for some seconds."""

    def pause() -> None:
        field.rig.cluster.pause("etcd")
        time.sleep(chance.uniform(1, 4))
        field.rig.cluster.resume("etcd")

    return _once(field, chance, pause)


def _once(field: Field, chance: random.Random, fault: Callable[[], None]) -> Disturb:
    @contextmanager
    def disturb(number: int, life: ScenarioRun) -> Iterator[Poke]:
        yield _in_turn(field, [(writes, fault) for writes in _moments(field, chance, number, 1)])

    return disturb


def clocks(field: Field, chance: random.Random) -> Disturb:
    """The operator's clock jumps far ahead and back, or far back and ahead."""

    @contextmanager
    def disturb(number: int, life: ScenarioRun) -> Iterator[Poke]:
        far = chance.choice((-HOUR, HOUR)) * chance.randint(1, 48)
        first, second = _moments(field, chance, number, 2)
        yield _in_turn(field, [(first, lambda: field.clock(far)), (second, lambda: field.clock(0))])
        field.clock(0)

    return disturb


def crowded(field: Field) -> Disturb:
    """A second operator leads at the same time, from the beginning of the step to its end."""

    @contextmanager
    def disturb(number: int, life: ScenarioRun) -> Iterator[None]:
        with field.second("--no-leader-election"):
            field.struck()
            yield

    return disturb


def frozen(field: Field, chance: random.Random) -> Disturb:
    """The operator is suspended in the middle of its writes until a second operator has taken its Lease and led for a
    second.

    When it continues, it behaves like an operator that has lost its Lease: it exits without another write.
    """

    @contextmanager
    def disturb(number: int, life: ScenarioRun) -> Iterator[Poke]:
        after, victim, thawed = 1 + _moments(field, chance, number, 1)[0], 0, -1

        def judge(sent: Sent) -> Verdict:
            nonlocal after, victim
            after -= sent.is_write
            if not victim and after <= 0:
                victim = field.pid()
                field.signal(signal.SIGSTOP)
                field.struck()
            return None

        with field.second() as second, field.proxy.judging(judge):

            def poke(writes: int) -> None:
                nonlocal thawed
                if victim and thawed < 0 and second() == "leading":
                    time.sleep(1)
                    thawed = field.proxy.writes
                    field.signal(signal.SIGCONT)
                    field.struck()

            yield poke
            field.rig.wait("it was thawed and has ended", lambda: poke(0) or (thawed >= 0 and field.pid() != victim))
            late = field.proxy.writes - thawed
            assert not late, f"an operator that had lost its Lease wrote {late} times after it continued"

    return disturb


def strangers(field: Field, chance: random.Random, of_a_step: int) -> Disturb:
    """Return a disturbance in which another user edits objects that the operator manages, or deletes them while their pods
    stay. Services that have another fault in the same step are left out. `of_a_step` is the number of such changes in a
    step.
    """

    def meddle(life: ScenarioRun) -> None:
        kind = chance.choice(tuple(SPOILED))
        mine = [one["metadata"]["name"] for one in life.rig.all(kind, life.namespace, MINE)]
        names = [name for name in mine if name.startswith(("calm", "pair"))]
        if not names:
            return
        name = chance.choice(names)
        if chance.random() < 0.5:
            life.rig.delete(kind, life.namespace, name, propagationPolicy="Orphan")
            return
        try:
            life.rig.patch(kind, life.namespace, name, SPOILED[kind])
        except ApiError as error:
            if error.code != 404:  # an earlier deletion was carried out just now
                raise

    @contextmanager
    def disturb(number: int, life: ScenarioRun) -> Iterator[Poke]:
        yield _in_turn(field, [(writes, lambda: meddle(life)) for writes in _moments(field, chance, number, of_a_step)])

    return disturb


def at_once(*ways: Disturb) -> Disturb:
    """Return a disturbance that causes all of `ways` at the same time."""

    @contextmanager
    def disturb(number: int, life: ScenarioRun) -> Iterator[Poke]:
        with ExitStack() as stack:
            pokes = [poke for way in ways if (poke := stack.enter_context(way(number, life))) is not None]

            def poke_all(writes: int) -> None:
                for poke in pokes:
                    poke(writes)

            yield poke_all

    return disturb


def _moments(field: Field, chance: random.Random, number: int, faults: int) -> list[int]:
    """Return the numbers of writes of a step after which faults shall happen. These numbers are in the first half of the
    step, because the faults have to happen before the step is over.
    """
    return sorted(chance.sample(range(max(faults, field.usual[number].writes // 2)), faults))


def _in_turn(field: Field, faults: list[tuple[int, Callable[[], None]]]) -> Poke:
    """Return a function that triggers faults one after another, each after its number of writes of the step."""
    waiting = sorted(faults, key=lambda one: one[0])

    def poke(writes: int) -> None:
        if waiting and writes >= waiting[0][0]:
            waiting.pop(0)[1]()
            field.struck()

    return poke
