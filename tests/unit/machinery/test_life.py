"""Tests that a process reports what it does, and ends when the first task ends that must not end."""

import asyncio
import logging

import pytest

from ome_operator.machinery.life import LEADING, STOPPING, ProcessLife


class LostError(Exception):
    """An error that is expected to end the process."""


async def ended(life: ProcessLife, error: BaseException | None, name: str = "watch") -> None:
    """Run a task with this name that ends with `error`; None lets it end without an error. Then report its end to `life`."""

    async def work() -> None:
        if error is not None:
            raise error

    task = asyncio.create_task(work(), name=name)
    await asyncio.wait([task])
    life.stop_after_task(task)


def test_probes_report_the_state_until_the_process_dies() -> None:
    life = ProcessLife()
    assert (life.health(), life.readiness()) == ((True, "ok"), (True, "starting"))
    life.enter("listing", ready=False)
    assert (life.health(), life.readiness()) == ((True, "ok"), (False, "listing"))
    life.enter(LEADING, ready=True)
    life.record_failure("watch", None)
    assert (life.health(), life.readiness()) == ((False, "watch: ended"), (False, "leading"))


@pytest.mark.parametrize(("error", "traceback"), [(LostError("the Lease is lost"), False), (KeyError("a bug"), True)])
async def test_only_an_unexpected_end_has_a_traceback(
    error: Exception, traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    life = ProcessLife(LostError)
    await ended(life, error)
    assert life.stop.is_set() and life.dead == f"watch: {error}"
    (record,) = [each for each in caplog.records if each.levelno == logging.CRITICAL]
    assert bool(record.exc_info) == traceback


async def test_first_ended_task_is_the_reason_and_ends_while_stopping_are_ignored() -> None:
    life = ProcessLife()
    await ended(life, None, "first")
    await ended(life, ValueError("later"), "second")
    assert life.dead == "first: ended"
    stopping = ProcessLife()
    stopping.enter(STOPPING, ready=True)
    await ended(stopping, None)
    assert stopping.dead == "" and not stopping.stop.is_set()


def test_the_cause_of_an_error_is_part_of_the_reason() -> None:
    life = ProcessLife()
    try:
        raise LostError("cannot watch") from OSError("no route")
    except LostError as error:
        life.record_failure("start", error)
    assert life.dead == "start: cannot watch (no route)"
