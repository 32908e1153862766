"""BenchmarkJobs for tests of pure code."""

from typing import Any

from ome_operator.api import BenchmarkJob
from tests.support import parts

SERVICE = {"inferenceService": {"name": parts.NAME, "namespace": parts.NAMESPACE}}
SPEC = {
    "endpoint": SERVICE,
    "task": "text-to-text",
    "trafficScenarios": ["D(100,100)"],
    "numConcurrency": [1, 4],
    "maxTimePerIteration": 10,
    "maxRequestsPerIteration": 50,
    "outputLocation": {"storageUri": "pvc://results/k2"},
}
UID, GENERATION = "uid-of-job", 3


def body(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a BenchmarkJob with these fields in addition. A field with the value None is removed."""
    wanted = {name: value for name, value in {**SPEC, **spec}.items() if value is not None}
    metadata = {"name": "speed", "namespace": parts.NAMESPACE, "uid": UID, "generation": GENERATION}
    whole = {"apiVersion": "ome.io/v1beta1", "kind": "BenchmarkJob", "metadata": metadata, "spec": wanted}
    return {**whole, **({"status": status} if status else {})}


def job(status: dict[str, Any] | None = None, **spec: Any) -> BenchmarkJob:
    """Return a BenchmarkJob with these fields in addition, parsed."""
    return parts.ensure_valid(BenchmarkJob.parse(body(status, **spec)))
