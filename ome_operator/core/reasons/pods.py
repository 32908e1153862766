"""Reasons of pods. Reasons of the kubelet and the scheduler are reported unchanged; reasons that are not listed here have
no record.
"""

from ome_operator.core.reasons.conditions import (
    COMPLETE,
    COMPONENTS,
    PREFLIGHT,
    READY,
    RECOVERED,
    ROLLED_OUT,
    ROUTER_INTACT,
    TRANSFERS_WORK,
)
from ome_operator.core.reasons.record import POD, Kstatus, ReasonRecord, RolloutStage, State

CURRENT, IN_PROGRESS = Kstatus.CURRENT, Kstatus.IN_PROGRESS
FREE_GPUS, LABEL_NODES = "free GPUs (who holds them: ome nodes), ", "label nodes, or "
"""The first two parts of the remedy for pods that find no node. They help only if nodes have too little free capacity."""
_PULL = "check the image's name and tag, and the pull secret of the pods' ServiceAccount"


class PodReasons:
    """States of the pods of a service."""

    CREATING = ReasonRecord(
        "Creating", of=(*COMPONENTS, READY, COMPLETE), kstatus=IN_PROGRESS, state=State.STARTING, passing=True,
        meaning="pods are being created",
        remedy="wait; the message has the counts",
    )  # fmt: skip
    PROGRESSING = ReasonRecord(
        "Progressing", of=(*COMPONENTS, ROLLED_OUT, READY), kstatus=IN_PROGRESS, state=State.STARTING,
        stage=RolloutStage.READY, passing=True,
        meaning="pods start; an engine takes many minutes to load a terabyte of weights",
        remedy="wait; the message has the counts",
    )  # fmt: skip
    PENDING = ReasonRecord(
        "Pending", of=(POD,), kstatus=IN_PROGRESS, state=State.WAITING, pods="waiting for the scheduler", on_its_way=True,
        printed=True,
        meaning="the scheduler has not placed the pod yet",
        remedy="the scheduler has not processed the pod yet; if this persists, check that kube-scheduler is running",
    )  # fmt: skip
    CONTAINER_CREATING = ReasonRecord(
        "ContainerCreating", of=(POD, COMPLETE), kstatus=IN_PROGRESS, state=State.STARTING, pods="starting",
        on_its_way=True, printed=True,
        meaning="the node pulls the image and mounts volumes, or an init container runs",
        remedy="no container runs yet: the node pulls the image and mounts volumes, which takes time",
    )  # fmt: skip
    FAILED_MOUNT = ReasonRecord(
        "FailedMount", of=COMPONENTS, kstatus=IN_PROGRESS, gravity=3, pods="cannot mount a volume", printed=True,
        meaning="a volume cannot be mounted: the directory does not exist on the node, or the PersistentVolumeClaim, Secret "
        "or ConfigMap does not exist. The message contains the message of the kubelet",
        remedy="correct what the message names, on the pod's node or in the spec; the kubelet tries again by itself",
        see="Put the files of a model where `spec.storage.path` points, or remove the label of the model from the node (see "
            "\"Nodes\" below)",
    )  # fmt: skip
    STARTING = ReasonRecord(
        "Starting", of=(POD,), kstatus=IN_PROGRESS, state=State.STARTING, passing=True, pods="starting", on_its_way=True,
        printed=True,
        meaning="the containers run, but the engine or router is not ready yet",
        remedy="wait until the weights are loaded; to follow the log: ome logs {service}{which} -f",
        router_remedy="ome logs {service}{which} -f",
    )  # fmt: skip
    NOT_READY = ReasonRecord(
        "NotReady", of=(POD, RECOVERED), kstatus=IN_PROGRESS, passing=True, gravity=120, pods="not ready",
        on_its_way=True, printed=True,
        meaning="a pod, or the leader of a group, was ready and no longer is",
        remedy="wait, and read the logs of the pod: ome logs {service}{which} --since 10m",
    )  # fmt: skip
    TERMINATING = ReasonRecord(
        "Terminating", of=(POD,), kstatus=IN_PROGRESS, state=State.STARTING, pods="terminating", on_its_way=True,
        printed=True,
        meaning="the pod is being deleted",
        remedy="wait until the grace period of the pod has passed; a pod that stays longer is on a lost node",
    )  # fmt: skip
    NODE_LOST = ReasonRecord(
        "NodeLost", of=(POD, *COMPONENTS), kstatus=IN_PROGRESS, printed=True,
        meaning="the node of the pod does not report its status",
        remedy="check the node: kubectl get nodes",
    )  # fmt: skip
    UNSCHEDULABLE = ReasonRecord(
        "Unschedulable", of=COMPONENTS, kstatus=IN_PROGRESS, state=State.WAITING, gravity=4, pods="unschedulable",
        printed=True,
        meaning="no node fits the pod; the condition contains the scheduler's message, and names the services that hold "
                "suitable nodes",
        remedy=f"{FREE_GPUS}{LABEL_NODES}check taints and requests; the labels of nodes: kubectl get nodes{{columns}}",
        router_remedy="free the resources that the message names, or check taints and requests: kubectl describe nodes",
    )  # fmt: skip
    IMAGE_PULL_BACK_OFF = ReasonRecord(
        "ImagePullBackOff", of=COMPONENTS, kstatus=IN_PROGRESS, gravity=1, pods="cannot pull their image", printed=True,
        meaning="the image cannot be pulled, and the kubelet waits before its next try",
        remedy=_PULL,
    )  # fmt: skip
    ERR_IMAGE_PULL = ReasonRecord(
        "ErrImagePull", of=COMPONENTS, kstatus=IN_PROGRESS, gravity=2, pods="cannot pull their image", printed=True,
        meaning="the image cannot be pulled",
        remedy=_PULL,
    )  # fmt: skip
    CRASH_LOOP_BACK_OFF = ReasonRecord(
        "CrashLoopBackOff", of=COMPONENTS, kstatus=IN_PROGRESS, gravity=0, pods="crash again and again", printed=True,
        meaning="the container exits repeatedly; the message contains its last log lines. The message keeps these lines "
                "while the container runs again, but the reason is then the cause for which the container ended (Error, "
                "OOMKilled)",
        remedy="ome logs {service}{which} --previous",
    )  # fmt: skip
    PODS_REFUSED = ReasonRecord(
        "PodsRefused", of=(*COMPONENTS, COMPLETE), kstatus=IN_PROGRESS, printed=True,
        meaning="pods cannot be created, because of Pod Security, a quota, a webhook or a missing ServiceAccount. The "
                "message contains the message of the API server",
        remedy="correct what the API server names: quota, Pod Security, ServiceAccount or webhook",
    )  # fmt: skip
    PREFLIGHT_FAILED = ReasonRecord(
        "PreflightFailed", of=(*COMPONENTS, PREFLIGHT, RECOVERED), kstatus=IN_PROGRESS, gravity=50,
        pods="held by their preflight", printed=True,
        meaning="the [preflight](preflight.md) check of a rank found a problem, and the mode is Require, so the group "
                "waits and is not recycled. In the condition `Recovered`: a recycled group waits because of such a "
                "problem",
        remedy="correct what the message names: the preflight check runs again within 5 minutes, or at once when the pods "
               "are deleted. To start the engine anyway, which makes a new revision: kubectl annotate isvc {service} "
               "--overwrite ome.io/preflight=Warn",
    )  # fmt: skip
    PREFLIGHT_FINDINGS = ReasonRecord(
        "PreflightFindings", of=(PREFLIGHT,), kstatus=CURRENT, printed=True,
        meaning="the [preflight](preflight.md) check of a rank found a problem, and the mode is Warn, so the engine "
                "starts anyway",
        remedy="the engine starts anyway; correct what the message names. All findings: ome logs {service}{which} -c "
        "ome-preflight",
    )  # fmt: skip
    STRANGER_IN_ROUTER = ReasonRecord(
        "StrangerInRouter", of=(ROUTER_INTACT,), kstatus=CURRENT,
        meaning="a worker that is not a pod of the service was in a router's list, and may have received prompts",
        remedy="see [Routers](security.md#routers)",
    )  # fmt: skip
    TRANSFERS_FAIL = ReasonRecord(
        "TransfersFail", of=(TRANSFERS_WORK,), kstatus=CURRENT, printed=True,
        meaning="a prefill engine cannot transfer KV caches to a decode engine, so a part of the requests fails",
        remedy="check the network between the nodes of the two pods. An engine that was taken out of the router gets "
               "requests again when its transfers succeed; to read the logs of the engines: ome logs "
               "{service}{which}",
    )  # fmt: skip
