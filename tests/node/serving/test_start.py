"""Measures the parts of real starts in seconds: the first start of a service, further starts, a start after a kill, and the
start of a new revision. The end of a start is compared with the end of a start of the same engines on 2026-11-27.

Two tables are printed. The first contains the parts that the status shows. The second contains the steps by the clock of
this machine, from the command until the first tokens.
"""

import asyncio
import math
import statistics
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import yaml

from ome_operator.core.recovery.start import PARTS
from tests.conftest import Tables
from tests.node.conftest import Steps
from tests.node.serving.conftest import READY_WITHIN_S, RUNTIME, SINGLE, address, reached, remove
from tests.node.serving.test_recovery import SEND
from tests.support.rig import ROOT, Rig
from tests.support.start_timeline import NAN, Timeline, recording
from tests.support.traffic import stream_of

NEW, OLD = "kimi-k2-tiny", "kimi-k2-tiny-slow"
PER_SECOND = 4.0
STARTS = 5
WITHIN_S = 240.0
STEPS = ("pod", "container", "engine", "startup", "ready", "sent", "listed", "endpoint", "tokens")
"""The steps of a start, which are measured in seconds:

* `pod`: from the command until the pod is created
* `container`: from then until its container runs
* `engine`: from then until the engine's warm-up has ended
* `startup`, `ready`, `sent`, `listed`: from the end of the warm-up until the startup probe has succeeded, the pod is ready,
  the registry sends the leader to the router, and the router lists the leader
* `endpoint`: from the time at which the router lists both roles until the Service has a ready endpoint
* `tokens`: from then until the first tokens
"""
SLOW = {
    "startupProbe": {"periodSeconds": 10, "failureThreshold": 60, "httpGet": {"path": "/health", "port": "http"}},
    "readinessProbe": {"periodSeconds": 5, "failureThreshold": 3, "httpGet": {"path": "/health/", "port": "http"}},
}
"""The probes that the operator rendered before 2026-11-28. SGLang redirects the path `/health/` of the readiness probe to
`/health`. The registry does not know the path `/health/`, so it lists a leader only when the leader is ready, as all
registries did before that date."""


class Start(NamedTuple):
    """A start of the leaders of both roles."""

    groups: list[dict[str, Any]]
    """The groups in the status, prefill first."""
    steps: list[dict[str, float]]
    """The seconds of each of `STEPS`, for each of these groups."""
    seconds: float
    """Seconds from the command until the first tokens."""
    ours: float
    """Seconds from the end of the warm-up of the group that was listed last until the Service has a ready endpoint."""


@pytest.fixture(scope="module")
def services(serving: Rig) -> Iterator[dict[str, Start]]:
    """Yield the first starts of two services that differ in the probes of their engines."""
    runtime = yaml.safe_load((ROOT / RUNTIME).read_text())
    runtime["metadata"]["name"] += "-slow"
    for role in ("engineConfig", "decoderConfig"):
        for name, probe in SLOW.items():
            runtime["spec"][role]["leader"]["runner"][name].update(probe)
    serving.cluster.apply(runtime)
    namespace, service = yaml.safe_load_all((ROOT / SINGLE).read_text())
    yield {name: first(serving, name, namespace, service) for name in (NEW, OLD)}
    for name in (NEW, OLD):
        remove(serving, name)


def first(rig: Rig, name: str, namespace: dict[str, Any], service: dict[str, Any]) -> Start:
    """Create a service, and return its first start."""
    namespace["metadata"]["name"] = service["metadata"]["name"] = service["metadata"]["namespace"] = name
    service["spec"]["runtime"]["name"] = f"kimi-k2-tiny-pd-cpu-rt{'-slow' if name == OLD else ''}"
    rig.cluster.apply(namespace)
    with recording(rig, name) as timeline:
        began = time.time()
        rig.cluster.apply(service)
        rig.ready(name, name, READY_WITHIN_S)
        url = address(rig, name, name)
        rig.wait("kube-proxy knows the endpoints", lambda: reached(url), 30)
        served = time.time()
        rig.wait("the first start is recorded", lambda: complete(rig, name, {}), 60)
        return seen(rig, name, timeline, began, served)


def groups(rig: Rig, name: str) -> list[dict[str, Any]]:
    """Return the entries of both groups in the status, prefill first."""
    found = (rig.get("InferenceService", name, name) or {}).get("status", {}).get("groups", ())
    return sorted(found, key=lambda each: each["component"], reverse=True)


def complete(rig: Rig, name: str, before: dict[str, int]) -> bool:
    """Return whether the starts of both groups are recorded with the parts that become known last, and are later than
    those in `before`, which maps names of leaders to incarnations.
    """
    found = groups(rig, name)
    return len(found) == 2 and all(
        each["incarnation"] > before.get(each["name"], 0) and parts(each).keys() >= {"engine", "listed"} for each in found
    )


def parts(group: dict[str, Any]) -> dict[str, float]:
    return {part["name"]: part["seconds"] for part in (group.get("start") or {}).get("parts") or ()}


def seen(rig: Rig, name: str, timeline: Timeline, began: float, served: float) -> Start:
    """Return the start that was recorded: `began` and `served` are the times of the command and of the first tokens."""
    found = groups(rig, name)
    leaders = [timeline.of_leader(each["name"], began) for each in found]
    both = max(each.listed for each in leaders)
    open_ = max(timeline.router_ready(both), timeline.endpoints_ready(name, both))
    served = max(served, open_)  # the previous revision serves meanwhile
    steps = [
        {
            "pod": each.created - began,
            "container": each.container - each.created,
            "engine": each.healthy - each.container,
            "startup": each.started - each.healthy,
            "ready": each.ready - each.healthy,
            "sent": each.sent - each.healthy,
            "listed": each.listed - each.healthy,
            "endpoint": open_ - both,
            "tokens": served - open_,
        }
        for each in leaders
    ]
    return Start(found, steps, served - began, open_ - max(leaders, key=lambda each: each.listed).healthy)


async def restart(rig: Rig, name: str, what: str) -> Start:
    """Start both engines again: new pods, new containers after their schedulers are killed, or a new revision."""
    url, leaders = address(rig, name, name), [each["name"] for each in groups(rig, name)]
    before = {each["name"]: each["incarnation"] for each in groups(rig, name)}
    with recording(rig, name) as timeline:
        async with stream_of(url, PER_SECOND) as report:
            await asyncio.sleep(1)
            began, clock = time.time(), time.monotonic()
            if what == "revision":
                env = [{"name": "TRY", "value": str(began)}]
                spec = {"engine": {"runner": {"env": env}}, "decoder": {"runner": {"env": env}}}
                await asyncio.to_thread(rig.patch, "InferenceService", name, name, {"spec": spec})
                before = {}
            for pod in leaders if what != "revision" else ():
                await asyncio.to_thread(rig.cluster.kubectl, *command(name, pod, what))
            while not await asyncio.to_thread(over, rig, name, before, leaders, what):
                assert time.monotonic() < clock + WITHIN_S, groups(rig, name)
                await asyncio.sleep(0.5)
        failed = max((one.began for one in report.failed_answers), default=clock)
        tokens = min(one.began + one.seconds for one in report.answers if not one.error and one.began > failed)
        return seen(rig, name, timeline, began, began + tokens - clock)


def command(namespace: str, pod: str, what: str) -> tuple[str, ...]:
    """Return the words of the command that ends a leader."""
    if what == "kill":
        script = SEND.replace("{signal}", "SIGKILL")
        return ("exec", "-n", namespace, pod, "-c", "ome-container", "--", "python3", "-c", script)
    return ("delete", "pod", "-n", namespace, pod, "--wait=false", "--grace-period=1")


def over(rig: Rig, name: str, before: dict[str, int], leaders: list[str], what: str) -> bool:
    """Return whether the start has ended. After a new revision, the groups of the old one must also be gone."""
    if what == "revision" and {each["name"] for each in groups(rig, name)} & set(leaders):
        return False
    return complete(rig, name, before)


def row(what: str, group: dict[str, Any], own: dict[str, float], names: tuple[str, ...], total: float) -> str:
    """Return a line of a table: the total, and the seconds of the parts that are known."""
    role = {"engine": "prefill", "decoder": "decode"}[group["component"]]
    said = "".join(f"{'':>11}" if math.isnan(own.get(name, NAN)) else f"{own[name]:>11.1f}" for name in names)
    return f"{what:<14}{role:<8}{total:>7.1f}{said}"


@pytest.mark.timeout(1800, func_only=True)
async def test_second_start_of_group_is_faster_than_with_old_settings(
    serving: Rig, services: dict[str, Start], steps: Steps, tables: Tables
) -> None:
    starts = [("first" if name == NEW else "first, old", start) for name, start in services.items()]
    for _ in range(STARTS):
        for name in services:
            starts.append(("second" if name == NEW else "second, old", await restart(serving, name, "delete")))
    for what in ("kill", "revision"):
        starts.append((what, await restart(serving, NEW, what)))
    head = f"{'':<22}{'total':>7}"
    tables["parts of starts"] = [head + "".join(f"{name:>11}" for name in PARTS)] + [
        row(what, each, parts(each), PARTS, each["start"]["seconds"]) for what, start in starts for each in start.groups
    ]
    tables["steps of starts"] = [head + "".join(f"{name:>11}" for name in STEPS)] + [
        row(what, each, own, STEPS, start.seconds)
        for what, start in starts
        for each, own in zip(start.groups, start.steps, strict=True)
    ]
    lost = {kind: [start.ours for what, start in starts if what == kind] for kind in ("second", "second, old")}
    for kind, seconds in lost.items():
        said = " ".join(f"{each:.1f}" for each in seconds)
        steps.note(f"from healthy to an endpoint, {kind}", f"median {statistics.median(seconds):.1f} s of {said}")
    assert {"imports", "engine", "probe", "listed"} <= {part for _, start in starts for part in parts(start.groups[0])}
    assert statistics.median(lost["second"]) < statistics.median(lost["second, old"])
