"""Tests that the page of metrics is created in slices, and is complete."""

import asyncio

from prometheus_client import generate_latest

from tests.support import metrics


async def test_other_tasks_run_between_slices_of_the_metrics_page() -> None:
    rig = await asyncio.to_thread(metrics.everything)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    text = await rig.metrics.page()
    beside.cancel()
    assert turns >= len(metrics.families(text)) > 40


def test_sliced_metrics_page_is_complete() -> None:
    rig = metrics.everything()

    def names(text: str) -> list[str]:
        return [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]

    assert names(rig.text()) == names(generate_latest(rig.metrics.registry).decode())
