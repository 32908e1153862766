"""The measurements on a cluster. Each creates its own cluster, so that it does not depend on earlier ones."""

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass, replace

from bench import offline
from bench.api import Api, run_in_lanes
from bench.bed import Bed, Operator, bed
from bench.counting import Count
from bench.results import Deletion, Quiet, Ramp, Restart
from bench.scenarios import NAMESPACE, Scenario, name
from bench.watching import Late
from ome_operator import keys
from ome_operator.kube.resources import CHILDREN

OURS = f"{keys.MANAGED_BY}={keys.MANAGER}"
WITHIN_S = 600.0
AFTER_RESTART_S = 15.0
"""Seconds for which a restarted operator is observed, so that late reconciliations are included."""
HPA_EVERY_S = 15.0
"""Interval at which the real controller reads its metrics."""


@dataclass(frozen=True)
class Extras:
    """The additional measurements to run on the same cluster once everything is Ready."""

    idle_s: float = 0.0
    restart: bool = False
    delete: bool = False


async def floor(scenario: Scenario, repetition: int, lanes: int, extras: Extras) -> Ramp:
    """Measure the floor: bare server-side applies of the same objects from one process, without the operator."""
    made = offline.objects(scenario)
    async with bed(scenario) as at:
        owners = [await at.api.create(offline.owner_config_map(number)) for number in range(scenario.services)]
        listed = [offline.with_owner(item, owner) for objects, owner in zip(made, owners, strict=True) for item in objects]
        cpu, began = at.servers_cpu(), time.monotonic()
        await run_in_lanes(listed, lanes, at.api.apply)
        sent = time.monotonic() - began
        await _pods_ready(at, scenario)
        spent = _spent(at, cpu)
        gone = await _deletion(at, "ConfigMap", scenario, lanes) if extras.delete else None
        return Ramp(
            scenario=scenario.key,
            title=scenario.title,
            side="floor",
            repetition=repetition,
            pods_s=at.watching.last_pod() - began,
            sent_s=sent,
            services=scenario.services,
            pods=scenario.pods,
            objects=len(made[0]),
            servers_cpu_s=spent,
            pace_ms=at.pace.mean_ms(began, at.watching.last_pod()),
            deletion=gone,
        )


async def operator(
    scenario: Scenario, repetition: int, lanes: int, extras: Extras
) -> tuple[Ramp, Quiet | None, Restart | None]:
    """Measure the operator, which creates the objects of the floor from InferenceServices. Return three values: the ramp,
    the operator at rest, and its restart. Each of the last two is None if `extras` does not request it.
    """
    async with bed(scenario) as at:
        process = Operator(at)
        await process.start()
        started, mark = process.usage().cpu_s, at.cluster.audit_mark()
        cpu, began = at.servers_cpu(), time.monotonic()
        await run_in_lanes(map(scenario.service, range(scenario.services)), lanes, at.api.create)
        sent = time.monotonic() - began
        await _pods_ready(at, scenario)
        spent = _spent(at, cpu)
        await _services_ready(at, scenario)
        settled = await at.wait_until_settled()
        ramp = Ramp(
            scenario=scenario.key,
            title=scenario.title,
            side="operator",
            repetition=repetition,
            pods_s=at.watching.last_pod() - began,
            sent_s=sent,
            services=scenario.services,
            pods=scenario.pods,
            objects=len(offline.objects(scenario.times(1))[0]),
            servers_cpu_s=spent,
            pace_ms=at.pace.mean_ms(began, at.watching.last_pod()),
            ready_s=max(at.watching.services_ready.values()) - began,
            lags_s=tuple(at.watching.lags()),
            count=await at.count(mark),
            usage=process.usage(),
            started_cpu_s=started,
            settled=settled,
        )
        idle = await _quiet(at, process, scenario, asyncio.sleep(extras.idle_s), extras.idle_s) if extras.idle_s else None
        restart = await _restart(at, process, scenario) if extras.restart else None
        gone = await _deletion(at, "InferenceService", scenario, lanes) if extras.delete else None
        return replace(ramp, deletion=gone, complaints=_complaints(process.log())), idle, restart


async def count_autoscaler_writes(scenario: Scenario, lanes: int, seconds: float) -> Quiet:
    """Count the operator's writes while the statuses of its autoscalers change."""
    async with bed(scenario) as at:
        process = Operator(at)
        await process.start()
        await run_in_lanes(map(scenario.service, range(scenario.services)), lanes, at.api.create)
        await _services_ready(at, scenario)
        found = await at.api.names("HorizontalPodAutoscaler", NAMESPACE)
        if len(found) != scenario.services:
            raise Late(f"{len(found)} autoscalers for {scenario.services} services")
        await at.wait_until_settled()
        return await _quiet(at, process, scenario, _move(at.api, found, seconds), seconds)


async def _move(api: Api, autoscalers: list[str], seconds: float) -> None:
    """Write changing loads into every autoscaler's status, at the interval of the real controller, for `seconds` seconds."""
    until, load = time.monotonic() + seconds, 40
    while (left := until - time.monotonic()) > 0:
        load += 1
        current = {"averageUtilization": load, "averageValue": f"{load}m"}
        metric = {"type": "Resource", "resource": {"name": "cpu", "current": current}}
        status = {"currentMetrics": [metric], "currentReplicas": 2, "desiredReplicas": 2}
        for item in autoscalers:
            await api.merge_status("HorizontalPodAutoscaler", NAMESPACE, item, status)
        await asyncio.sleep(min(HPA_EVERY_S, left))


async def _quiet(at: Bed, process: Operator, scenario: Scenario, meanwhile: Awaitable[None], seconds: float) -> Quiet:
    before, mark, began = process.usage().cpu_s, at.cluster.audit_mark(), time.monotonic()
    await meanwhile
    await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
    took = time.monotonic() - began
    return Quiet(scenario.services, took, await at.count(mark), process.usage().cpu_s - before)


async def _restart(at: Bed, process: Operator, scenario: Scenario) -> Restart:
    mark, began = at.cluster.audit_mark(), time.monotonic()
    await process.stop()
    stopped = time.monotonic() - began
    lead = await process.start()
    await asyncio.sleep(AFTER_RESTART_S)
    counted: Count = await at.count(mark)
    return Restart(scenario.services, stopped, lead, counted, process.usage())


async def _deletion(at: Bed, kind: str, scenario: Scenario, lanes: int) -> Deletion:
    """Delete the owners of the objects, which are services or, for the floor, ConfigMaps of the given kind. Wait until the
    garbage collector has deleted the objects.
    """
    watching, began = at.watching, time.monotonic()
    await run_in_lanes(map(name, range(scenario.services)), lanes, lambda item: at.api.delete(kind, NAMESPACE, item))
    pods = await watching.wait_until("pods gone", lambda: not watching.pods, WITHIN_S) - began
    for child in CHILDREN:  # deleted objects do not return, so one kind can be checked after another
        while await at.api.names(child, NAMESPACE, OURS, limit=1):
            if time.monotonic() > began + WITHIN_S:
                raise Late(f"objects of kind {child} still exist after {WITHIN_S:.0f} s")
            await asyncio.sleep(0.1)
    return Deletion(time.monotonic() - began, pods)


async def _pods_ready(at: Bed, scenario: Scenario) -> None:
    watching = at.watching
    await watching.wait_until(f"{scenario.pods} pods ready", lambda: watching.ready_pods() >= scenario.pods, WITHIN_S)


async def _services_ready(at: Bed, scenario: Scenario) -> None:
    ready, wanted = at.watching.services_ready, scenario.services
    await at.watching.wait_until(f"{wanted} services ready", lambda: len(ready) >= wanted, WITHIN_S)


def _spent(at: Bed, before: dict[str, float]) -> dict[str, float]:
    return {server: round(cpu - before.get(server, 0.0), 2) for server, cpu in at.servers_cpu().items()}


def _complaints(log: str) -> int:
    return sum(any(word in line for word in ("WARNING", "ERROR", "CRITICAL")) for line in log.splitlines())
