"""Advice about queues of Kueue: settings because of which Kueue does not admit the pods of a service together."""

from collections.abc import Iterator, Mapping

from ome_operator import keys
from ome_operator.core.render import pod_groups
from ome_operator.core.render.statefulsets import StoredRole
from ome_operator.names import role_title


def advice(
    roles: Mapping[str, StoredRole], groups: Mapping[str, int], labels: Mapping[str, str], revision: str
) -> Iterator[str]:
    """Yield a sentence for each mistake in the queues and pod groups of a revision: a label without effect, a role that
    waits in no queue although another role waits in one, and pods of a group that Kueue does not admit together.

    `roles` are the stored roles of the revision, `groups` is the number of desired groups of each role, and `labels` are the
    labels of the InferenceService.
    """
    queues = {name: pod_groups.queues(role.leader, role.worker) for name, role in roles.items()}
    waiting = {name: found for name, found in queues.items() if any(found)}
    both = keys.DECODER in roles
    if not waiting and keys.KUEUE_LABEL in labels:
        yield (
            f"the label {keys.KUEUE_LABEL} of the InferenceService has no effect: write this label into "
            + " and ".join(f"spec.{name}.labels" for name in roles)
        )
    for name in roles.keys() - waiting.keys() if waiting else ():
        other = next(iter(waiting))
        yield (
            f"{role_title(other, both)} waits in a queue of Kueue and {role_title(name, both)} does not, so "
            f"{role_title(name, both)} takes "
            f"nodes while {role_title(other, both)} waits: write the label {keys.KUEUE_LABEL} into spec.{name}.labels, too"
        )
    for name, found in waiting.items():
        role = roles[name]
        if len(found) > 1:
            yield (
                f"leader and workers of {role_title(name, both)} do not name the same queue of Kueue, so Kueue does not "
                f"admit a group as a whole: write the label {keys.KUEUE_LABEL} into spec.{name}.labels only"
            )
        elif not role.pod_group and role.size > 1 and not pod_groups.has_user_pod_group(role.leader, role.worker):
            yield (
                f"Kueue admits the pods of {role_title(name, both)} one by one, because an earlier version of the operator "
                f"rendered revision {revision}: make a new revision, in which Kueue admits each group as a whole"
            )
    yield from _miscounted(roles, groups)


def _miscounted(roles: Mapping[str, StoredRole], groups: Mapping[str, int]) -> Iterator[str]:
    """Yield a sentence for each pod group of Kueue that a user named, if the number of its pods differs from the number that
    the user wrote for it.
    """
    pods, counts = dict[str, int](), dict[str, str]()
    for name, role in roles.items():
        for workload, number in ((role.leader, 1), (role.worker, role.size - 1)):
            group, count = pod_groups.of_user(workload)
            if group:
                pods[group] = pods.get(group, 0) + number * groups.get(name, 1)
                counts[group] = count
    for group, count in counts.items():
        if count != str(pods[group]):
            yield (
                f"the annotation {keys.KUEUE_COUNT} of pod group {group} is {count or 'missing'}, but the service has "
                f"{pods[group]} of its pods, and Kueue admits them only if the numbers are equal: correct the annotation, "
                f"or remove the label {keys.KUEUE_GROUP}, so that the operator chooses a pod group for each group"
            )
