"""Name the pods of an engine group as one pod group of Kueue, so that Kueue admits all of them or none.

Each engine group is a pod group of its own, because its size never changes. A pod group over prefill and decode would keep
the quota of a group that is scaled down: Kueue waits for a replacement of each pod that it has admitted.
"""

from collections.abc import Mapping

from ome_operator import keys
from ome_operator.core.observed.objects import Manifest

KUEUE = "kueue"
"""Value of `podGroup` in a stored role whose engine groups are named as pod groups of Kueue. Earlier versions of the
operator stored roles without this value, and their pods get no pod group."""
PARENT = "ome.io/inferenceservice"
"""Value of the annotation `kueue.x-k8s.io/pod-suspending-parent`. It names the controller of the pods by API group and kind,
as Kueue names its integrations."""


def queues(leader: Manifest, worker: Manifest | None) -> frozenset[str]:
    """Return the queues of Kueue that the pods of a role name; "" stands for pods that name no queue. The arguments are
    stored StatefulSets. `worker` is None for a role without workers.
    """
    return frozenset(str(_labels(each).get(keys.KUEUE_LABEL) or "") for each in (leader, worker) if each is not None)


def has_user_pod_group(leader: Manifest, worker: Manifest | None) -> bool:
    """Return whether the user wrote the label of a Kueue pod group, or the annotation with its number of pods, for the
    leaders or the workers of a role. `worker` is None for a role without workers.
    """
    return any(any(of_user(each)) for each in (leader, worker))


def of_user(workload: Manifest | None) -> tuple[str, str]:
    """Return the name of the pod group and the number of its pods that the user wrote for the pods of a stored StatefulSet;
    "" for what the user did not write. `workload` is None for a role without workers.
    """
    if workload is None:
        return "", ""
    notes = workload["spec"]["template"]["metadata"].get("annotations") or {}
    return str(_labels(workload).get(keys.KUEUE_GROUP) or ""), str(notes.get(keys.KUEUE_COUNT) or "")


def kind(leader: Manifest, worker: Manifest | None) -> str:
    """Return `KUEUE` if the pods of each engine group are named as a pod group of Kueue; otherwise "". `worker` is None for
    a role without workers.

    The pods are not named if they name no queue, if leader and workers do not name the same queue, or if the user wrote the
    name of a pod group.
    """
    found = queues(leader, worker)
    return KUEUE if len(found) == 1 and all(found) and not has_user_pod_group(leader, worker) else ""


def with_pod_group(metadata: Manifest, name: str, size: int) -> Manifest:
    """Return the metadata of a pod template with the name of its Kueue pod group and the number of pods of the group. `size`
    is this number.

    The annotation `kueue.x-k8s.io/pod-suspending-parent` is set, too. Without it, Kueue adds a finalizer, which keeps a pod
    that has ended until its replacement exists. A StatefulSet gives the replacement the same name, so the replacement could
    never be created.
    """
    labels = {keys.KUEUE_GROUP: name, keys.KUEUE_MANAGED: "true"}
    annotations = {keys.KUEUE_COUNT: str(size), keys.KUEUE_SERVING: "true", keys.KUEUE_PARENT: PARENT}
    return {
        **metadata,
        "labels": {**metadata["labels"], **labels},
        "annotations": {**(metadata.get("annotations") or {}), **annotations},
    }


def _labels(workload: Manifest) -> Mapping[str, str]:
    return workload["spec"]["template"]["metadata"].get("labels") or {}
