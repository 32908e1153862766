"""Selects the measurements, and runs them in order."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO

from bench import alone, churn, ear, eyes, fleet, labelled, linted, measure, page_cache, planned, starting, tenants, weights
from bench.api import RequestRefused
from bench.measure import Extras
from bench.results import Ramp, Results
from bench.scenarios import PAIRS, SCALED, SINGLE, SPLIT, Scenario
from bench.watching import Late
from ome_operator.errors import UserError

PARTS = (
    "sync",
    "ramp",
    "pairs",
    "split",
    "idle",
    "restart",
    "delete",
    "hpa",
    "models",
    "tenants",
    "fleet",
    "labels",
    "start",
    "churn",
    "plan",
    "lint",
    "eyes",
    "ear",
    "page-cache",
)
SIDES = ("floor", "operator")


@dataclass(frozen=True)
class Options:
    """The options of a run."""

    only: tuple[str, ...] = PARTS
    services: tuple[int, ...] = (1, 10, 100)
    repeat: int = 3
    lanes: int = 32
    sides: tuple[str, ...] = SIDES
    idle_s: float = 60.0
    pairs: int = 100
    """Number of services in each of two measurements: of services with a group of two nodes, and of services with several
    groups."""
    scaled: int = 50
    crowd: tuple[int, int] = (2000, 5000)
    """Numbers of BaseModels and of waiting services that the other tenants have while a quiet tenant is measured."""
    churned: int = churn.SHAPE.services
    """Number of services that are created and deleted."""
    labelled: tuple[int, int, int] = (300, 207, 20)
    """Numbers of nodes, of models with a label on each node, and of services."""
    started: tuple[int, int, int] = (5000, 207, starting.SHAPE.services)
    """Numbers of nodes, of models with a label on each node, and of services, for the starts of the operator."""
    scraped: tuple[int, ...] = (100, 1000)
    """Numbers of services in the scraped metrics."""
    routers: tuple[int, float] = (1000, 60.0)
    """Number of routers whose summaries are requested, and seconds of the measurement."""
    prefetched: tuple[int, float] = (4 * 2**30, 20.0)
    """Bytes of the weights that are read into the page cache, and seconds of the image pull during which they are read."""
    steps: int = fleet.STEPS
    """Number of sizes of each dimension of a fleet."""

    def wants(self, part: str) -> bool:
        """Return whether a part was requested."""
        return part in self.only


@dataclass(frozen=True)
class Bench:
    """A run of the benchmark."""

    options: Options
    results: Results
    out: TextIO

    async def run(self) -> None:
        """Run everything that was requested. A failure is recorded, and the rest continues."""
        options = self.options
        if options.wants("sync"):
            self._say("sync alone")
            self.results.alone = alone.measure()
        if options.wants("fleet"):
            self._say("a fleet that grows")
            self.results.fleets = await asyncio.to_thread(fleet.measure, options.steps, options.repeat)
        if options.wants("plan"):
            self._say("ome plan for 16 nodes")
            self.results.planned = await asyncio.to_thread(planned.measure, options.repeat)
        if options.wants("lint"):
            self._say("ome lint of the catalog")
            self.results.linted = await asyncio.to_thread(linted.measure, options.repeat)
        if options.wants("eyes"):
            self._say("scrapes of the operator's metrics")
            self.results.eyes = [await eyes.measure(services) for services in options.scraped]
        if options.wants("ear"):
            self._say("summaries of routers")
            self.results.ear = await ear.measure(*options.routers)
        if options.wants("models"):
            self._say("weights from a hub on loopback")
            self.results.fetched, self.results.shared = await asyncio.to_thread(weights.measure, options.repeat)
        if options.wants("page-cache"):
            self._say("weights read ahead into the page cache")
            with self._noted("page cache"):
                self.results.paged = await asyncio.to_thread(page_cache.measure, *options.prefetched, options.repeat)
        largest = max(options.services)
        on_ramps = any(options.wants(part) for part in ("ramp", "idle", "restart", "delete"))
        for count in options.services if on_ramps else ():
            await self._ramps(_single(count), count == largest)
        if options.wants("pairs"):
            await self._ramps(PAIRS.times(options.pairs), False)
        if options.wants("split"):
            await self._ramps(SPLIT.times(options.pairs), False)
        if options.wants("hpa") and "operator" in options.sides:
            await self._scaled(SCALED.times(options.scaled))
        if options.wants("tenants") and "operator" in options.sides:
            await self._tenants(*options.crowd)
        if options.wants("labels") and "operator" in options.sides:
            await self._labelled(*options.labelled)
        if options.wants("start") and "operator" in options.sides:
            await self._started(*options.started)
        if options.wants("churn") and "operator" in options.sides:
            await self._churned(options.churned)

    async def _ramps(self, scenario: Scenario, last: bool) -> None:
        """Run the floor and the operator alternately. The side that runs first changes with every repetition, so that a
        drift of the machine affects both.
        """
        for repetition in range(self.options.repeat):
            sides = [side for side in SIDES if side in self.options.sides]
            for side in reversed(sides) if repetition % 2 else sides:
                await self._ramp(scenario, side, repetition, last)

    async def _ramp(self, scenario: Scenario, side: str, repetition: int, last: bool) -> None:
        options, results, began = self.options, self.results, time.monotonic()
        once = last and repetition == 0
        extras = Extras(
            idle_s=options.idle_s if once and options.wants("idle") else 0.0,
            restart=once and options.wants("restart"),
            delete=last and options.wants("delete"),
        )
        title = f"{scenario.title}, {side}, {repetition + 1} of {options.repeat}"
        with self._noted(title):
            if side == "floor":
                done: Ramp = await measure.floor(scenario, repetition, options.lanes, extras)
            else:
                done, idle, restart = await measure.operator(scenario, repetition, options.lanes, extras)
                results.idle, results.restart = idle or results.idle, restart or results.restart
            results.ramps.append(done)
            self._say(f"{title}: last pod Ready after {done.pods_s:.1f} s ({time.monotonic() - began:.0f} s in all)")

    async def _scaled(self, scenario: Scenario) -> None:
        title = f"{scenario.services} services while HPA statuses change"
        with self._noted(title):
            self.results.scaled = await measure.count_autoscaler_writes(scenario, self.options.lanes, self.options.idle_s)
            self._say(f"{title}: {self.results.scaled.writes_a_minute:g} writes a minute")

    async def _tenants(self, models: int, services: int) -> None:
        title = f"a tenant beside {models} models and {services} waiting services"
        with self._noted(title):
            self.results.beside = await tenants.measure(models, services, self.options.lanes)
            self._say(f"{title}: measured")

    async def _labelled(self, nodes: int, models: int, services: int) -> None:
        title = f"labels of {models} models on {nodes} nodes"
        with self._noted(title):
            self.results.labelled = await labelled.measure(nodes, models, services, self.options.lanes)
            self._say(f"{title}: measured")

    async def _started(self, nodes: int, models: int, services: int) -> None:
        title = f"starts among {nodes} nodes with {models} models and {services} services"
        with self._noted(title):
            self.results.started = await starting.measure(nodes, models, services, self.options.lanes, self.options.repeat)
            self._say(f"{title}: measured")

    async def _churned(self, services: int) -> None:
        title = f"{services} services that are created and deleted"
        with self._noted(title):
            self.results.churned = await churn.measure(services, self.options.lanes)
            self._say(f"{title}: measured")

    @contextmanager
    def _noted(self, title: str) -> Iterator[None]:
        """Record a failure inside the `with` block, so that the remaining measurements continue."""
        try:
            yield
        except BaseException as error:
            self._failed(title, error)

    def _failed(self, title: str, error: BaseException) -> None:
        """Record a failure of an expected type; raise any other error again."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if not isinstance(error, Late | RequestRefused | UserError | OSError):
            raise error
        self.results.failures.append(f"{title}: {error}")
        self._say(self.results.failures[-1])

    def _say(self, line: str) -> None:
        print(f"{datetime.now(UTC):%H:%M:%S} {line}", file=self.out, flush=True)


def _single(count: int) -> Scenario:
    return SINGLE.get(count) or SINGLE[10].times(count)
