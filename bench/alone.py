"""Measures `sync` without a cluster, for the Kimi service of config/: when it is new, and when all of its pods are ready."""

import gc
import itertools
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import yaml

from bench import offline
from bench.results import SyncTimes
from bench.scenarios import Manifest
from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.core.observed import from_api
from ome_operator.core.observed.objects import Deps, Observed
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.reconcile.sync import sync

CONFIG = Path(__file__).parent.parent / "config"
FILES = (
    "models/moonshotai/Kimi-K2-Instruct.yaml",
    "runtimes/srt/kimi-k2-pd-rt.yaml",
    "samples/isvc/moonshotai/kimi-k2-pd.yaml",
)
HOLDS = f"{keys.MODEL_LABEL_PREFIX}clusterbasemodel.kimi-k2-instruct"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def measure(calls: int = 300) -> SyncTimes:
    """Measure a call of `sync` for a new service and a call for a ready service, and return the duration of each in
    microseconds.
    """
    service, deps = kimi()
    first = sync(service, deps, Observed(), NOW)
    ready, observed = steady_state(service, deps)
    others = (replace(service, name=f"kimi-{number}", uid=str(number)) for number in itertools.count())
    seen = (with_newer_pod(observed, version) for version in itertools.count(2))
    revision = next(item for item in offline.manifests(first) if item["kind"] == "ControllerRevision")
    return SyncTimes(
        first_us=per_call(lambda: sync(next(others), deps, Observed(), NOW), calls),
        steady_us=per_call(lambda: sync(ready, deps, next(seen), NOW), calls),
        revision_bytes=len(json.dumps(revision, separators=(",", ":")).encode()),
        objects=len(offline.manifests(first)),
        pods=len(observed.pods),
    )


def kimi() -> tuple[InferenceService, Deps]:
    """Return the service of config/ and the objects that it refers to."""
    documents = [item for file in FILES for item in yaml.safe_load_all((CONFIG / file).read_text())]
    body = next(item for item in documents if item["kind"] == "InferenceService")
    return offline.service(body), offline.dependencies(documents, HOLDS, 16)


def steady_state(service: InferenceService, deps: Deps, first: Plan | None = None) -> tuple[InferenceService, Observed]:
    """Return the service, and the objects that are observed once everything exists and is ready, so that `sync` has
    nothing to do. `first` is the plan of the first pass, if there was one.
    """
    made = offline.manifests(first or sync(service, deps, Observed(), NOW))
    children = {}
    for number, manifest in enumerate(made, start=1):
        child = from_api.child(manifest["kind"], as_stored(manifest, number))
        children[child.kind, child.name] = child._replace(owned=child.hash)
    pods = [
        from_api.pod(pod) for number, manifest in enumerate(made, start=1) for pod in pods_of(as_stored(manifest, number))
    ]
    observed = Observed(children=children, pods=tuple(pods))
    service = replace(service, status=sync(service, deps, observed, NOW).status)
    _check(sync(service, deps, observed, NOW), service)
    return service, observed


def with_newer_pod(observed: Observed, version: int) -> Observed:
    """Return the same observation with a newer version of one pod. Such observations are measured because most passes are
    caused by events that change nothing.
    """
    first, *rest = observed.pods
    return replace(observed, pods=(first._replace(version=version), *rest))


def as_stored(manifest: Manifest, number: int) -> Manifest:
    """Return a manifest as the API server would return it."""
    metadata = {**manifest["metadata"], "uid": f"child-{number}", "resourceVersion": str(number)}
    return {**manifest, "metadata": metadata}


def pods_of(workload: Manifest) -> list[Manifest]:
    """Return the pods, all ready, that a stored StatefulSet would create, or that a stored Deployment would create
    through its ReplicaSet.
    """
    if workload["kind"] not in ("StatefulSet", "Deployment"):
        return []
    spec, owner = workload["spec"], {**workload["metadata"], "kind": "StatefulSet"}
    if workload["kind"] == "Deployment":
        owner = {**owner, "kind": "ReplicaSet", "name": f"{owner['name']}-5d4f8c7b9", "uid": "replica-set"}
    first = spec.get("ordinals", {}).get("start", 0)
    return [_pod(spec["template"], owner, ordinal) for ordinal in range(first, first + spec["replicas"])]


def _pod(template: Manifest, owner: Manifest, ordinal: int) -> Manifest:
    name = f"{owner['name']}-{ordinal}"
    reference = {"kind": owner["kind"], "name": owner["name"], "uid": owner["uid"], "controller": True}
    metadata = {
        "name": name,
        "namespace": owner["namespace"],
        "uid": name,
        "resourceVersion": "1",
        "labels": {**template["metadata"]["labels"], keys.POD_INDEX: str(ordinal)},
        "ownerReferences": [reference],
    }
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": metadata, "spec": {"nodeName": "node-0"}, "status": status}


def per_call(call: Callable[[], Plan], calls: int) -> float:
    """Return the median duration of a call over several series, in microseconds. As in the operator, the garbage collector
    does not examine old objects during the calls.
    """
    series = []
    gc.collect()
    gc.freeze()
    for _ in range(7):
        began = time.perf_counter()
        for _ in range(max(1, calls // 7)):
            call()
        series.append((time.perf_counter() - began) / max(1, calls // 7) * 1e6)
    gc.unfreeze()
    return statistics.median(series)


def _check(plan: Plan, service: InferenceService) -> None:
    """Raise ValueError if the plan for the steady state changes anything, because the figure would be meaningless."""
    todo = [*plan.check, *plan.first, *plan.apply, *plan.create, *plan.apply_status, *plan.patch, *plan.delete]
    ready = [item for item in plan.status["conditions"] if item["type"] == "Scaled"]
    if todo or plan.status != service.status or not ready or ready[0]["status"] != "True":
        raise ValueError(f"sync still has work although everything is ready: {todo or plan.status}")
