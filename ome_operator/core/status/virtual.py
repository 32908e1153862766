"""The status of services in the mode VirtualDeployment: the model is served elsewhere under their name, and they have no
pods.
"""

from datetime import datetime
from typing import Any

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.core.reasons import ADVICE, READY, Reason
from ome_operator.core.status import conditions as cond

MODE = f"{keys.GROUP}/deploymentMode"
"""Annotation of a service; `spec.deploymentMode` is the newer form."""
VIRTUAL = "VirtualDeployment"


def is_virtual(service: InferenceService) -> bool:
    """Return whether a service has the mode, and therefore no pods."""
    return VIRTUAL in (service.spec.deployment_mode, service.annotations.get(MODE))


def virtual_status(service: InferenceService, left: bool, now: datetime) -> dict[str, Any]:
    """Return the status of such a service, as OME defines it: Ready, with a URL. `left` states whether objects from an
    earlier mode exist.
    """
    url = f"http://{service.name}.{service.namespace}.svc.cluster.local"
    ready = cond.Condition(READY, True, Reason.VIRTUAL_DEPLOYMENT, f"{url} is served elsewhere: no pods are created")
    wanted = [ready]
    if left:
        message = (
            f"objects from before the mode {VIRTUAL} are left unchanged: remove the mode, or delete the "
            "service to end its pods"
        )
        wanted.append(cond.Condition(ADVICE, True, Reason.NO_EFFECT, message))
    return {
        "observedGeneration": service.generation,
        "url": url,
        "address": {"url": url},
        "components": {name: {"url": url} for name in service.spec.components},
        "conditions": cond.stamp(wanted, service.status.get("conditions") or (), service.generation, now),
    }
