"""Tests that deleted objects leave nothing in memory, because an operator runs for months."""

import gc
import tracemalloc
from collections.abc import Iterable
from typing import Any

from bench import offline
from bench.scenarios import HOLDS, SINGLE, catalog
from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.event_handler import EventHandler
from ome_operator.cache.resources import SERVICE
from ome_operator.controllers.base import CORE
from ome_operator.core.observed import nodes
from ome_operator.core.observed.objects import Deps, Observed
from ome_operator.machinery.store import TOMBSTONE_SECONDS, TOMBSTONES
from ome_operator.util import memoize
from tests.unit.cache.test_event_handler import body
from tests.unit.controllers.makers import NOW

CHILDREN = ("StatefulSet", "Deployment", "Service", "ControllerRevision", "Pod")


class Life:
    """A simulated cluster in which services are created and deleted."""

    def __init__(self) -> None:
        self.now, self.version = 0.0, 0
        cache = ClusterCache(Deps(), clock=lambda: self.now)
        self.cluster = EventHandler(cache, lambda *_: None, CORE.models_of, CORE.runtimes_of)

    def lives(self, numbers: Iterable[int]) -> None:
        """Create these services with all their objects, and delete everything."""
        told = [(kind, each) for number in numbers for kind, each in self._bodies(number)]
        for kind, each in told:
            self.cluster.handle_observed(kind, each)
            self.cluster.handle_written(kind, each)
        self.cluster.cache.deps()
        for kind, each in reversed(told):
            self.version += 1
            self.cluster.handle_deleted(kind, each["metadata"]["uid"], self.version)
            self.cluster.handle_written(kind, each)  # a response that arrives too late

    def _bodies(self, number: int) -> Iterable[tuple[str, dict[str, Any]]]:
        service = f"s-{number}"
        labels = {keys.SERVICE: service, keys.MANAGED_BY: keys.MANAGER}
        model = {"kind": "BaseModel", "name": f"m-{number}"}
        spec: dict[str, Any] = {"model": model, "runtime": {"name": f"rt-{number}"}, "engine": {}}
        storage = {"modelFormat": {"name": "safetensors"}, "storage": {"storageUri": f"hf://a/{number}"}}
        label = f"{keys.MODEL_LABEL_PREFIX}ns.basemodel.m-{number}"
        yield "BaseModel", self._body(f"m-{number}", spec=storage)
        yield SERVICE, self._body(service, spec=spec)
        for kind in CHILDREN:
            yield kind, self._body(f"{service}-{kind}", metadata={"labels": labels}, spec={"nodeName": f"n-{number}"})
        yield "Node", self._body(f"n-{number}", metadata={"labels": {label: "Ready"}})
        held = [{"kind": "BaseModel", "namespace": "ns", "name": f"m-{number}"}]
        yield "NodeModels", self._body(f"n-{number}", metadata={"uid": f"record-{number}"}, status={"models": held})

    def _body(self, name: str, **parts: Any) -> dict[str, Any]:
        self.version += 1
        return body(name, self.version, **parts)

    def later(self) -> None:
        """Let so much time pass that the cache forgets the versions of deleted objects (`TOMBSTONE_SECONDS`)."""
        self.now += TOMBSTONE_SECONDS + 1
        self.cluster.cache.tidy()
        self.cluster.cache.deps()


def entries(root: Any) -> int:
    """Return the number of entries in all containers that can be reached from an object of this project."""
    seen, at, found = set[int](), [root], 0
    while at:
        value = at.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, dict | list | set | frozenset | tuple):
            found += len(value)
            at += [*value, *value.values()] if isinstance(value, dict) else value
        elif type(value).__module__.startswith("ome_operator."):
            at += vars(value).values() if hasattr(value, "__dict__") else ()
    return found


def test_deleted_services_leave_no_objects_in_the_cache() -> None:
    """A thousand services with nine objects each are created and deleted, and the operator then keeps nothing about them in
    memory.
    """
    life = Life()
    life.lives(range(100))
    life.later()
    before = entries(life.cluster)
    for first in range(100, 1100, 500):
        life.lives(range(first, first + 500))
    assert entries(life.cluster) > 2 * before, "tombstones remain, because events of deleted objects may still arrive"
    life.later()
    assert entries(life.cluster) == before


def test_memory_use_returns_to_the_initial_amount() -> None:
    life = Life()
    tracemalloc.start()
    try:
        sizes = []
        for first in range(0, 400, 100):
            life.lives(range(first, first + 100))
            life.later()
            nodes.clear_caches()  # this cache has its own limit, and grows with each node that has other labels
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[-1] - sizes[0] < 0.1 * sizes[0], f"{sizes} bytes"


def test_number_of_deletion_records_is_limited() -> None:
    life = Life()
    for number in range(TOMBSTONES + 100):
        life.cluster.handle_deleted("Pod", f"uid-{number}", 5)
    assert entries(life.cluster.cache.pods) < 4 * TOMBSTONES


def test_manifests_of_deleted_services_are_dropped() -> None:
    scenario = SINGLE[100]
    deps = offline.dependencies(catalog(), HOLDS, scenario.nodes)
    living = offline.service(scenario.service(0))

    def passed(service: InferenceService) -> None:
        CORE.sync(service, deps, Observed(), NOW)

    def turn() -> int:
        passed(living)
        for _ in memoize.forget_unused():
            pass
        return memoize.count_results()

    turn()
    before = turn()
    for number in range(1, 100):
        passed(offline.service(scenario.service(number)))
    assert memoize.count_results() > 10 * before
    turn()
    assert turn() <= 1.1 * before
