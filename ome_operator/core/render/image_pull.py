"""Render the Job that pulls an image of a new revision onto one node before the rollout (docs/rollouts.md).

The pod of the Job runs the program `true` of the image. A pod whose command does not exist would pull the image, too, but
not every container runtime ends such a pod: CRI-O refuses to create the container, and the kubelet tries again until the
deadline.
"""

from collections.abc import Mapping
from typing import Any

from ome_operator import keys, names
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.render import meta

COMMAND = "true"
KEPT_S = 3600
"""Seconds for which a Job is kept after its end. The finished Job shows that the image was pulled, so it has to exist
while the rollout waits for images."""
ALWAYS, NEVER = "Always", "Never"
_KEPT = ("imagePullSecrets", "runtimeClassName", "serviceAccountName", "tolerations")
"""Fields of the service's pods that determine whether, how and with which credentials an image may be pulled."""
_RESOURCES = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}}
_USER = 65532
_RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}
"""The securityContext of the container. Together with the securityContext of the pod (`_POD_RESTRICTED`), it satisfies the
level `restricted` of Pod Security."""
_POD_RESTRICTED = {"runAsNonRoot": True, "runAsUser": _USER, "seccompProfile": {"type": "RuntimeDefault"}}


def policy(container: Mapping[str, Any]) -> str:
    """Return the pull policy of a container, with the default that the API server fills in."""
    tag = str(container.get("image") or "").rpartition("/")[2]
    latest = "@" not in tag and tag.partition(":")[2] in ("", "latest")
    return str(container.get("imagePullPolicy") or (ALWAYS if latest else "IfNotPresent"))


def name(owner: meta.Owner, revision: str, node: str, image: str) -> str:
    """Return the name of the Job that pulls an image onto a node. The name differs between services that have the same name
    but different UIDs, so a service that is created again does not use the Jobs of its predecessor.
    """
    return names.image_pull(owner.name, revision, names.digest([owner.uid, node, image]))


def job(owner: meta.Owner, revision: str, node: str, template: Manifest, seconds: float) -> Manifest:
    """Return the Job that pulls the image of the main container of a pod template onto a node within `seconds`.

    If the image does not contain the command, the container exits on containerd with a code other than 0. The Job then
    fails with the reason PodFailurePolicy, which means that the image was pulled. A pod that is evicted, or refused by the
    kubelet, has no exit code. In this case, the Job fails with BackoffLimitExceeded.
    """
    main = template["spec"]["containers"][0]
    box: Manifest = {
        "name": "image",
        "image": main["image"],
        "command": [COMMAND],
        # Images of CUDA request all GPUs of the node by this variable, and refuse to start if the driver is too old.
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
        "resources": _RESOURCES,
        "securityContext": _RESTRICTED,
    }
    if main.get("imagePullPolicy"):
        box["imagePullPolicy"] = main["imagePullPolicy"]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": _POD_RESTRICTED,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}},
        "containers": [box],
        **{key: template["spec"][key] for key in _KEPT if template["spec"].get(key)},
    }
    # The pod has none of the service's labels, so that no Service, budget, NetworkPolicy or router selects it. A proxy
    # is not injected, because it would keep the pod from ending.
    labels = {keys.IMAGE_PULL: revision, "sidecar.istio.io/inject": "false"}
    spec = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": int(seconds),
        "ttlSecondsAfterFinished": KEPT_S,
        "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [0]}}]},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    own = meta.labels(owner.name, revision=revision)
    return meta.manifest(owner, "batch/v1", "Job", name(owner, revision, node, main["image"]), own, {"spec": spec})
