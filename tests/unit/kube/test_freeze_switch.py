"""Tests of the freeze of all services, which is an annotation on a Lease that may be absent, unreadable or new."""

import asyncio
import logging
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.core.freeze.hold import freeze_text
from ome_operator.kube.errors import Forbidden, KubeError, NotFound, Transient
from ome_operator.kube.freeze_switch import FreezeSwitch
from tests.support.fake_api import Call, FakeApi

WHEN = "2026-11-24T15:40:00Z by alice"


def lease(value: str | None) -> dict[str, Any]:
    return {"metadata": {"name": "lease", **({"annotations": {keys.FREEZE: value}} if value is not None else {})}}


class Seen:
    """A freeze switch, and the changes that it has reported."""

    def __init__(self) -> None:
        self.api, self.told = FakeApi(), list[str]()
        self.switch = FreezeSwitch(self.api, "ns", "lease", read_freeze=freeze_text, changed=self.told.append, interval=0.0)

    async def looks(self, answer: dict[str, Any] | KubeError) -> bool:
        """Read the Lease once, and return whether the state of the switch is known."""
        self.api.answers["get Lease"] = answer
        await self.switch.check()
        return self.switch.known.is_set()


async def test_freeze_switch_reports_only_changes() -> None:
    seen = Seen()
    for value in (None, WHEN, WHEN, "false", "true", "", None):
        assert await seen.looks(lease(value))
    assert seen.told == [WHEN, "", "true", ""]


@pytest.mark.parametrize("error", [Forbidden("no", 403), Transient("no answer")])
async def test_freeze_state_is_unknown_before_the_first_read_and_then_kept_on_errors(
    error: KubeError, caplog: pytest.LogCaptureFixture
) -> None:
    """Before the Lease has been read, it is unknown whether everything is frozen; afterwards the last known state counts. An
    API server that has just started answers every request with 403 for some seconds, which must not end a freeze.
    """
    seen = Seen()
    with caplog.at_level(logging.WARNING):
        assert not await seen.looks(error)
        assert not await seen.looks(error)
    assert len(caplog.records) == 1 and "no reconciliation starts until the Lease has been read" in caplog.text
    assert await seen.looks(lease(WHEN))
    await seen.looks(error)
    assert seen.told == [WHEN]


async def test_deleted_lease_does_not_end_a_freeze() -> None:
    seen = Seen()
    assert await seen.looks(NotFound("gone", 404)), "without leader election there is no Lease"
    await seen.looks(lease(WHEN))
    await seen.looks(NotFound("gone", 404))
    assert seen.told == [WHEN]
    await seen.looks(lease(None))
    assert seen.told == [WHEN, ""]


async def test_freeze_switch_reads_the_lease_repeatedly() -> None:
    seen = Seen()
    enough = asyncio.Event()

    def answer(_: Call) -> dict[str, Any]:
        if len(seen.api.calls) >= 3:
            enough.set()
        return lease(WHEN)

    seen.api.answers["get Lease"] = answer
    running = asyncio.create_task(seen.switch.run())
    async with asyncio.timeout(60):
        await enough.wait()
    running.cancel()
    assert seen.told == [WHEN]
