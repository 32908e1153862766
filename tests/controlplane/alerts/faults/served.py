"""Creates a service that is Ready, in which other modules cause faults."""

from typing import Any

from tests.controlplane.alerts.conftest import Bed
from tests.support import yamls
from tests.support.rig import Manifest, Rig

SERVICE = "svc"


def served(bed: Bed, size: int = 1, gpus: int = 0, name: str = SERVICE, **spec: Any) -> str:
    """Create a service that is Ready, and return its namespace, which is also the name of its runtime."""
    namespace = bed.namespace()
    bed.rig.create(yamls.runtime(namespace, size=size, gpus=gpus))
    bed.later(bed.rig.delete, "ClusterServingRuntime", "", namespace)
    bed.later(bed.rig.clear, namespace)
    bed.rig.create(yamls.service(namespace, name, namespace, **spec))
    bed.rig.ready(namespace, name, 60)
    return namespace


def engines(rig: Rig, namespace: str) -> list[Manifest]:
    """Return the engine pods of the service."""
    return rig.all("Pod", namespace, "component=engine")
