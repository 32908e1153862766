"""The status of services in the mode VirtualDeployment. Such a service has no pods: somebody else serves its model under the
name of the service.
"""

from datetime import datetime
from typing import Any

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.core.reasons import ADVICE, READY, Reason
from ome_operator.core.status import conditions as cond

MODE = f"{keys.GROUP}/deploymentMode"
"""Annotation that sets the mode of a service; the field `spec.deploymentMode` is its newer form."""
VIRTUAL = "VirtualDeployment"


def is_virtual(service: InferenceService) -> bool:
    """Return whether a service is in the mode VirtualDeployment, and therefore has no pods."""
    return VIRTUAL in (service.spec.deployment_mode, service.annotations.get(MODE))


def virtual_status(service: InferenceService, left: bool, now: datetime) -> dict[str, Any]:
    """Return the status of a service in the mode VirtualDeployment, as OME defines it: Ready, with a URL. `left` is true if
    objects of the service exist that were created in another mode.
    """
    url = f"http://{service.name}.{service.namespace}.svc.cluster.local"
    message = f"no pods are created in the deployment mode {VIRTUAL}, so another server has to serve {url}"
    ready = cond.Condition(READY, True, Reason.VIRTUAL_DEPLOYMENT, message)
    wanted = [ready]
    if left:
        message = (
            f"objects that existed before the deployment mode {VIRTUAL} was set are left unchanged: remove the mode, or "
            "delete the service to end its pods"
        )
        wanted.append(cond.Condition(ADVICE, True, Reason.NO_EFFECT, message))
    model = service.spec.model.name if service.spec.model is not None else None
    return {
        "observedGeneration": service.generation,
        "url": url,
        **({"model": model} if model else {}),
        "address": {"url": url},
        "components": {name: {"url": url} for name in service.spec.components},
        "conditions": cond.format_conditions(wanted, service.status.get("conditions") or (), service.generation, now),
    }
