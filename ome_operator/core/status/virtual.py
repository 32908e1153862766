"""Services of the mode VirtualDeployment: somebody else serves the model under their name, and no pods are made for them."""

from datetime import datetime
from typing import Any

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.core.reasons import ADVICE, READY, Reason
from ome_operator.core.status import conditions as cond

MODE = f"{keys.GROUP}/deploymentMode"
"""Annotation of a service; `spec.deploymentMode` is the newer spelling."""
VIRTUAL = "VirtualDeployment"


def virtual(service: InferenceService) -> bool:
    """Whether a service wants no pods."""
    return VIRTUAL in (service.spec.deployment_mode, service.annotations.get(MODE))


def status(service: InferenceService, left: bool, now: datetime) -> dict[str, Any]:
    """Its status, as OME says it: Ready, with the URL of its name. `left`: whether something is there from before."""
    url = f"http://{service.name}.{service.namespace}.svc.cluster.local"
    ready = cond.Condition(READY, True, Reason.VIRTUAL_DEPLOYMENT, f"{url} is served by others: no pods are made")
    wanted = [ready]
    if left:
        said = (
            f"what was made for the service before it became {VIRTUAL} is left as it is: remove the mode, or delete the "
            "service to end its pods"
        )
        wanted.append(cond.Condition(ADVICE, True, Reason.NO_EFFECT, said))
    return {
        "observedGeneration": service.generation,
        "url": url,
        "address": {"url": url},
        "components": {name: {"url": url} for name in service.spec.components},
        "conditions": cond.stamp(wanted, service.status.get("conditions") or (), service.generation, now),
    }
