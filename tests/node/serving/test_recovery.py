"""Tests in which real ranks are killed and stopped in groups of two pods, under traffic. They measure the time from the
fault until tokens are generated again.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.node.conftest import Steps
from tests.node.serving.conftest import GROUPS, READY_WITHIN_S, come_up, remove
from tests.support.rig import Rig
from tests.support.traffic import Report, stream_of

NAME = "kimi-k2-tiny-tp2"
PER_SECOND = 2.0
CALM_S = 4.0
HEALED_WITHIN_S = 240.0
"""Seconds within which a group has to generate tokens again after a fault. A start of a group took 36 s, and a hang is
observed for 60 s in addition to the time of the probes."""

SEND = """
import contextlib, os, pathlib, signal
for proc in pathlib.Path('/proc').glob('[0-9]*'):
    with contextlib.suppress(OSError):
        if b'scheduler' in (proc / 'cmdline').read_bytes() and int(proc.name) != os.getpid():
            os.kill(int(proc.name), signal.{signal})
            print('sent')
"""


@pytest.fixture(scope="module")
def groups(serving: Rig, steps: Steps) -> Iterator[str]:
    """Yield the URL of the service with prefill and decode in groups of two pods."""
    yield come_up(serving, GROUPS, NAME, steps, "prefill and decode of two pods each, to be broken")
    remove(serving, NAME)


def group(rig: Rig, component: str) -> dict[str, Any]:
    """Return the entry of the only group of a role in the status."""
    found = (rig.get("InferenceService", NAME, NAME) or {}).get("status", {}).get("groups", ())
    return next((one for one in found if one["component"] == component), {})


def pod_of(rig: Rig, component: str, rank: int) -> str:
    """Return the name of the pod of a rank."""
    for pod in rig.all("Pod", NAME, f"component={component}"):
        labels = pod["metadata"]["labels"]
        if int(labels["apps.kubernetes.io/pod-index"]) == rank:
            return str(pod["metadata"]["name"])
    raise AssertionError(f"{component} has no rank {rank}")


def send(rig: Rig, pod: str, signal: str) -> None:
    """Send a signal to the scheduler of a rank, which is the process that computes."""
    script = SEND.replace("{signal}", signal)
    said = rig.cluster.kubectl("exec", "-n", NAME, pod, "-c", "ome-container", "--", "python3", "-c", script)
    assert "sent" in said, f"no scheduler in {pod}"


def first_good(report: Report, since: float) -> float:
    """Return the seconds from the fault until the first answer after the last failed request."""
    last = max((one.began for one in report.failed_answers), default=since)
    good = (one.began + one.seconds for one in report.answers if not one.error and one.began > last)
    return min(good, default=0.0) - since


@pytest.mark.timeout(400, func_only=True)
@pytest.mark.parametrize(
    ("component", "rank", "signal"),
    [
        ("engine", 1, "SIGKILL"),
        ("engine", 0, "SIGKILL"),
        ("decoder", 1, "SIGKILL"),
        ("engine", 1, "SIGSTOP"),
        ("decoder", 0, "SIGSTOP"),
    ],
)
async def test_group_serves_again_after_rank_is_killed_or_hangs(
    serving: Rig, groups: str, steps: Steps, component: str, rank: int, signal: str
) -> None:
    """After a rank is killed or stopped, its group generates tokens again. A failure causes at most one recycle of one
    group; a group that hangs recovers only by a recycle.
    """
    before, other = group(serving, component), group(serving, {"engine": "decoder", "decoder": "engine"}[component])
    pod = pod_of(serving, component, rank)
    async with stream_of(groups, PER_SECOND) as report:
        await asyncio.sleep(CALM_S)
        assert not report.failed_answers, report.failed_answers[0].error
        began = time.monotonic()
        await asyncio.to_thread(send, serving, pod, signal)
        await asyncio.to_thread(serving.wait, "the group is back", lambda: back(serving, before), HEALED_WITHIN_S)
        while not report.answers or report.answers[-1].error or report.answers[-1].began < began:
            assert time.monotonic() < began + HEALED_WITHIN_S + 60, f"no tokens: {report.answers[-1]}"
            await asyncio.sleep(0.5)
        await asyncio.sleep(CALM_S)
    after = group(serving, component)
    recycles = after.get("recycles", 0) - before.get("recycles", 0)
    lost = f"{len(report.failed_answers)} of {len(report.answers)} requests failed"
    what = f"{signal} of rank {rank} of {'prefill' if component == 'engine' else 'decode'}"
    steps.note(what, f"{first_good(report, began):>8.1f} s until good tokens   {recycles} recycles   {lost}")
    assert recycles <= 1 and after["incarnation"] == before["incarnation"] + 1
    assert signal != "SIGSTOP" or recycles == 1
    assert after["lastFailure"]["reason"], after
    still = group(serving, other["component"])
    assert still.get("recycles", 0) == other.get("recycles", 0), "the group of the other role must not be recycled"
    serving.ready(NAME, NAME, READY_WITHIN_S)


def back(rig: Rig, before: dict[str, Any]) -> bool:
    """Return whether the group is Ready and has been started once more since the fault."""
    now = group(rig, before["component"])
    return now.get("phase") == "Ready" and now.get("incarnation", 0) > before["incarnation"]
