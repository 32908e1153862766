"""Count the objects that a rollout creates and removes, and the amounts that they use of ResourceQuotas."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ome_operator import keys
from ome_operator.core import group_numbers
from ome_operator.core.observed.objects import Manifest, Pod
from ome_operator.core.observed.slices import Slice
from ome_operator.core.placement.fit import ignores_fit
from ome_operator.core.placement.quotas import QuotaChange, Usage, of_pod, of_workload
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.render.statefulsets import StoredRole
from ome_operator.core.rollout.intent import Intent

_SETS, _DEPLOYMENTS = of_workload("statefulsets"), of_workload("deployments")


def quota_change(snapshot: Snapshot, intent: Intent, router: Iterable[Manifest]) -> QuotaChange | None:
    """Return the usage of the objects that the rollout of the target creates and removes; None if quotas are not compared.

    The target is counted with at most as many groups as exist now, because groups beyond these may wait for a quota without
    an interruption. While pods of the old revisions are terminating, the result is None, because the API server may not yet
    have subtracted them from the used amounts. `router` is the Deployment of the target's router.
    """
    target = intent.target
    old = [found for name, found in snapshot.slices.items() if name != target]
    if any(pod.deleting for found in old for pod in found.pods) or ignores_fit(snapshot.service.annotations):
        return None
    comes, goes = Counter[Usage](), Counter[Usage]()
    for name, role in intent.roles(target).items():
        have = sum(len(group_numbers.existing_groups(name, found)) for found in old)
        number = min(intent.groups.get(name, 1), max(1, have))
        comes[of_pod(_spec(role.leader))] += number
        comes[_SETS] += number
        if role.worker is not None:
            comes[of_pod(_spec(role.worker))] += number * (role.size - 1)
            comes[_SETS] += number
    templates = list(router)
    for manifest in templates:
        comes[of_pod(_spec(manifest))] += intent.groups.get(keys.ROUTER, 1)
        comes[_DEPLOYMENTS] += 1
    for found in old:
        goes.update(_existing(intent.roles(found.revision), templates, found))
    if target in snapshot.slices:  # the used amounts of the quotas already include the objects that exist
        comes.subtract(Counter(_existing(intent.roles(target), templates, snapshot.slices[target])))
    return QuotaChange(tuple((+comes).items()), tuple(goes.items()))


def _existing(roles: Mapping[str, StoredRole], routers: Iterable[Manifest], found: Slice) -> Iterator[Usage]:
    """Yield the amounts that each existing object of a revision uses of ResourceQuotas. The pods of the revision's router
    are counted with the pod templates of the Deployments `routers`. `roles` are the roles of the revision, and `found`
    contains its workloads and pods.
    """
    for child in found.workloads:
        if child.kind in ("StatefulSet", "Deployment"):
            yield _SETS if child.kind == "StatefulSet" else _DEPLOYMENTS
    for pod in found.pods:
        workload = _workload(roles, routers, pod)
        if workload is not None and not pod.over:
            yield of_pod(_spec(workload))


def _workload(roles: Mapping[str, StoredRole], routers: Iterable[Manifest], pod: Pod) -> Manifest | None:
    """Return the workload, or its stored template, that a pod was made from; None if it is unknown."""
    if pod.component == keys.ROUTER:
        return next(iter(routers), None)
    role = roles.get(pod.component)
    if role is None:
        return None
    return role.worker if pod.rank else role.leader


def _spec(workload: Manifest) -> Manifest:
    spec: Manifest = workload["spec"]["template"]["spec"]
    return spec
