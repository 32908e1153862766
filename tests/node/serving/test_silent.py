"""Tests in which an engine stops working under traffic, while another decode group works. They measure the seconds until the
leader is removed from the router, until its group is recycled, and until no request fails any more.

With OME_SOAK=1, each fault is repeated three times.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.conftest import SOAK, Tables
from tests.node.conftest import Steps
from tests.node.serving.conftest import remove
from tests.node.serving.decoders import Decoders, Pod, after, derived, name_of, replace_arg, send
from tests.node.serving.test_recovery import first_good
from tests.support.rig import Rig
from tests.support.traffic import stream_of

NAME, RANKS = "kimi-k2-tiny", "kimi-k2-tiny-ranks"
PER_SECOND = 2.0
CALM_S = 10.0
OUT_WITHIN_S, BACK_WITHIN_S = 20.0, 240.0
TIMES = 3 if SOAK else 1
DELAYED_AFTER = 5
HEADING = "engines that stop, beside another decode group"


class Limit(NamedTuple):
    """The `hangTimeout` of a service, and how long it then takes until a silent group is recycled."""

    hang: str
    """`hangTimeout` of decode; "" for the default."""
    decided_within: float
    """Seconds within which the group is recycled."""


class Fault(NamedTuple):
    """Processes of the leader's pod that are stopped with SIGSTOP."""

    what: str
    title: str
    """Regular expression of their command lines."""
    service: str = NAME


SHORT, DEFAULT = Limit("15s", 30.0), Limit("", 75.0)
FAULTS = (
    Fault("all processes of the leader", ""),
    Fault("the scheduler of the leader", "^sglang::scheduler"),
    Fault("the engine answers and returns no token", "^sglang::detokenizer"),
    Fault("the scheduler of rank 1 of 2", "^sglang::scheduler_TP1", RANKS),
)


@pytest.fixture(scope="module")
def services(serving: Rig, ours: None, steps: Steps, request: pytest.FixtureRequest) -> Iterator[dict[str, Decoders]]:
    """Yield the services by name, and start them when they are first needed."""
    made = Services(serving, lambda: str(request.getfixturevalue("tiny")), steps)
    yield made
    if RANKS in made:
        remove(serving, RANKS)
    if NAME in made:
        made[NAME].scale(1)


class Services(dict[str, Decoders]):
    """The services with one prefill and two decode groups."""

    def __init__(self, rig: Rig, tiny: Callable[[], str], steps: Steps) -> None:
        self._rig, self._tiny, self._steps = rig, tiny, steps

    def __missing__(self, name: str) -> Decoders:
        if name == NAME:
            self[name] = Decoders(self._rig, name, self._tiny())
        else:
            self[name] = derived(self._rig, name, self._steps, two_ranks)
        return self[name]


def two_ranks(runtime: dict[str, Any]) -> None:
    """Let the decode engines of a runtime have two tensor-parallel ranks in one pod."""
    replace_arg(runtime["spec"]["decoderConfig"], "--tp-size=2")


def least_recycled(service: Decoders) -> Pod:
    """Return the decode leader whose group was recycled least often.

    The operator delays the sixth recycle in a row by 160 s, and the tests do not take long enough in between. If all
    groups were recycled five times, the last group is therefore first removed and created again.
    """
    recycles = recycles_in_a_row(service)
    if all(recycles[name_of(pod)] >= DELAYED_AFTER for pod in service.leaders()):
        service.scale(1)
        service.scale(2)
        recycles = recycles_in_a_row(service)
    return min(service.leaders(), key=lambda pod: recycles[name_of(pod)])


def recycles_in_a_row(service: Decoders) -> dict[str, int]:
    """Return leader -> number of recycles of its group since it was last ready for ten minutes."""
    return {group["name"]: group.get("recyclesInARow", 0) for group in service.groups()}


@pytest.mark.timeout(700, func_only=True)
@pytest.mark.parametrize("turn", range(TIMES))
@pytest.mark.parametrize("limit", [SHORT, DEFAULT], ids=["short", "default"])
@pytest.mark.parametrize("fault", FAULTS, ids=["leader", "scheduler", "tokens", "rank"])
async def test_stopped_engine_is_removed_from_the_router_and_recycled(
    services: dict[str, Decoders], tables: Tables, fault: Fault, limit: Limit, turn: int
) -> None:
    service = await asyncio.to_thread(services.__getitem__, fault.service)
    leader = await asyncio.to_thread(least_recycled, service)
    await asyncio.to_thread(service.scale, 2, **({"hangTimeout": limit.hang} if limit.hang else {}))
    before = service.recycles()
    async with stream_of(service.url, PER_SECOND) as report:
        await asyncio.sleep(CALM_S)
        began = time.monotonic()
        await asyncio.to_thread(send, leader, fault.title, signal.SIGSTOP)
        out = await after(began, "out of the router", BACK_WITHIN_S, lambda: not service.lists(leader))
        decided = await after(began, "recycled", BACK_WITHIN_S, lambda: service.recycles() > before)
        said = f"{fault.what:<42}{limit.hang or 'default':<9}out {out:5.1f} s   decided {decided:5.1f} s"
        print(said)
        back = await after(began, "two decode leaders", BACK_WITHIN_S, lambda: service.has(2))
        await asyncio.sleep(CALM_S)
    lost = f"{len(report.failed_answers)} of {len(report.answers)} requests failed"
    said += f"   good tokens {first_good(report, began):5.1f} s   both serve {back:6.1f} s   {lost}"
    tables.setdefault(HEADING, []).append(said)
    assert out < OUT_WITHIN_S and decided < limit.decided_within, said
    assert service.recycles() == before + 1


@pytest.mark.timeout(700, func_only=True)
@pytest.mark.parametrize("turn", range(TIMES))
@pytest.mark.parametrize("fault", FAULTS[1:3], ids=["scheduler", "tokens"])
async def test_resumed_engine_is_listed_again_and_not_recycled(
    services: dict[str, Decoders], tables: Tables, fault: Fault, turn: int
) -> None:
    service = await asyncio.to_thread(services.__getitem__, fault.service)
    await asyncio.to_thread(service.scale, 2)
    leader, before = service.leaders()[1], service.recycles()
    async with stream_of(service.url, PER_SECOND) as report:
        await asyncio.sleep(CALM_S)
        began = time.monotonic()
        await asyncio.to_thread(send, leader, fault.title, signal.SIGSTOP)
        out = await after(began, "out of the router", BACK_WITHIN_S, lambda: not service.lists(leader))
        continued = time.monotonic()
        await asyncio.to_thread(send, leader, fault.title, signal.SIGCONT)
        back = await after(continued, "listed again", 60.0, lambda: service.lists(leader))
        await asyncio.sleep(CALM_S)
    lost = f"{len(report.failed_answers)} of {len(report.answers)} requests failed"
    said = f"out {out:5.1f} s   listed again {back:5.1f} s after SIGCONT   {lost}"
    print(said)
    tables.setdefault(HEADING, []).append(f"{fault.what + ', then SIGCONT':<51}{said}")
    assert service.recycles() == before
    assert out < OUT_WITHIN_S
