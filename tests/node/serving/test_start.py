"""The seconds of each part of real starts, as the status shows them: the first start of a service, a second start, and a
start after a kill. And what the periods of probes cost, beside the same engines with the periods of before.
"""

import asyncio
import statistics
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from ome_operator.core.recovery.start import PARTS
from tests.conftest import Tables
from tests.node.conftest import Steps
from tests.node.serving.conftest import MINUTES, READY_WITHIN_S, RUNTIME, SINGLE, address, come_up, reached, remove
from tests.node.serving.test_recovery import SEND
from tests.support.rig import ROOT, Rig
from tests.support.traffic import stream_of

pytestmark = MINUTES
NEW, OLD = "kimi-k2-tiny", "kimi-k2-tiny-slow"
PER_SECOND = 4.0
STARTS = 5
WITHIN_S = 240.0
OURS = ("probe", "listed")
SLOW = {
    "startupProbe": {"periodSeconds": 10, "failureThreshold": 60},
    "readinessProbe": {"periodSeconds": 5, "failureThreshold": 3},
}
"""The periods of the probes before 2026-11-28."""


@pytest.fixture(scope="module")
def services(serving: Rig, steps: Steps) -> Iterator[dict[str, str]]:
    """Yield the URLs of two services that differ in the periods of their engines' probes."""
    runtime = yaml.safe_load((ROOT / RUNTIME).read_text())
    runtime["metadata"]["name"] += "-slow"
    for role in ("engineConfig", "decoderConfig"):
        for name, probe in SLOW.items():
            runtime["spec"][role]["leader"]["runner"][name].update(probe)
    serving.cluster.apply(runtime)
    namespace, service = yaml.safe_load_all((ROOT / SINGLE).read_text())
    namespace["metadata"]["name"] = service["metadata"]["name"] = service["metadata"]["namespace"] = OLD
    service["spec"]["runtime"]["name"] += "-slow"
    urls = {NEW: come_up(serving, SINGLE, NEW, steps, "apply to Ready, probes of 1 s")}
    for each in (namespace, service):
        serving.cluster.apply(each)
    serving.ready(OLD, OLD, READY_WITHIN_S)
    urls[OLD] = address(serving, OLD, OLD)
    serving.wait("kube-proxy knows the endpoints", lambda: reached(urls[OLD]), 30)
    yield urls
    for name in urls:
        remove(serving, name)


def groups(rig: Rig, name: str) -> list[dict[str, Any]]:
    """Return the entries of the groups in the status, prefill first."""
    found = (rig.get("InferenceService", name, name) or {}).get("status", {}).get("groups", ())
    return sorted(found, key=lambda each: each["component"], reverse=True)


def complete(rig: Rig, name: str, incarnation: int) -> bool:
    """Whether the starts of both groups are recorded with their last part."""
    found = groups(rig, name)
    return len(found) == 2 and all(each["incarnation"] == incarnation and "listed" in parts(each) for each in found)


def parts(group: dict[str, Any]) -> dict[str, float]:
    return {part["name"]: part["seconds"] for part in (group.get("start") or {}).get("parts") or ()}


async def restart(rig: Rig, url: str, name: str, *, kill: bool = False) -> tuple[list[dict[str, Any]], float]:
    """Start both engines again: new pods, or new containers after their schedulers are killed. Return the groups, and the
    seconds until the first tokens.
    """
    before = max(each["incarnation"] for each in groups(rig, name))
    leaders = [each["name"] for each in groups(rig, name)]
    async with stream_of(url, PER_SECOND) as report:
        began = time.monotonic()
        for pod in leaders:
            if kill:
                script = SEND.replace("{signal}", "SIGKILL")
                words = ("exec", "-n", name, pod, "-c", "ome-container", "--", "python3", "-c", script)
                assert "sent" in await asyncio.to_thread(rig.cluster.kubectl, *words)
            else:
                words = ("delete", "pod", "-n", name, pod, "--wait=false", "--grace-period=1")
                await asyncio.to_thread(rig.cluster.kubectl, *words)
        while not await asyncio.to_thread(complete, rig, name, before + 1):
            assert time.monotonic() < began + WITHIN_S, groups(rig, name)
            await asyncio.sleep(0.5)
    failed = max(one.began for one in report.failed)
    tokens = min(one.began + one.seconds for one in report.answers if not one.error and one.began > failed)
    return groups(rig, name), tokens - began


def row(what: str, group: dict[str, Any], tokens: float | None = None) -> str:
    """Return a line of the table."""
    found, role = parts(group), {"engine": "prefill", "decoder": "decode"}[group["component"]]
    said = "".join(f"{found[name]:>10.1f}" if name in found else f"{'':>10}" for name in PARTS)
    return f"{what:<14}{role:<8}{group['start']['seconds']:>7.0f}{said}" + (f"{tokens:>10.1f}" if tokens is not None else "")


@pytest.mark.timeout(1500, func_only=True)
async def test_the_parts_of_starts(serving: Rig, services: dict[str, str], steps: Steps, tables: Tables) -> None:
    serving.wait("the first starts are recorded", lambda: complete(serving, NEW, 1), 60)
    rows = [f"{'':<22}{'ready':>7}{''.join(f'{name:>10}' for name in PARTS)}{'tokens':>10}"]
    rows += [row("first", each) for each in groups(serving, NEW)]
    lost: dict[str, list[float]] = {NEW: [], OLD: []}
    for _ in range(STARTS):
        for name in services:
            found, tokens = await restart(serving, services[name], name)
            rows += [row("second" if name == NEW else "before", each, tokens) for each in found]
            lost[name] += [sum(parts(each)[part] for part in OURS) for each in found]
    found, tokens = await restart(serving, services[NEW], NEW, kill=True)
    rows += [row("kill", each, tokens) for each in found]
    tables["parts of starts"] = rows
    for name, what in ((NEW, "startup probes of 1 s"), (OLD, "startup probes of 10 s")):
        said = " ".join(f"{each:.1f}" for each in lost[name])
        steps.note(f"from healthy to listed, {what}", f"median {statistics.median(lost[name]):.1f} s of {said}")
    metrics = {part for each in groups(serving, NEW) for part in parts(each)}
    assert {"imports", "engine", "probe", "listed"} <= metrics
    assert statistics.median(lost[NEW]) < statistics.median(lost[OLD])
