"""Keep the serving revision until a dry run has shown that the API server accepts the target: its workloads, a pod of each
distinct template, and what its pods need of ResourceQuotas.

The workloads alone are not enough. Pod Security, an admission policy about images, a LimitRange or a quota refuses pods and
accepts the StatefulSet that creates them, so the old revision would end and the new revision would have no pod (decisions
40).
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ome_operator import keys, names
from ome_operator.core.observed.objects import Manifest, Pod
from ome_operator.core.podspec.spelling import translate_errors
from ome_operator.core.reasons import Reason
from ome_operator.core.reconcile.plan import Check, PodQuestion
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.render import sample_pods
from ome_operator.core.render.statefulsets import stamp
from ome_operator.core.rollout import routers
from ome_operator.core.rollout.intent import Intent
from ome_operator.core.rollout.quota_change import quota_change
from ome_operator.core.rollout.step import RolloutGate
from ome_operator.names import digest, role_title

_LEADER, _WORKER = "leader", "worker"


def with_dry_run(snapshot: Snapshot, intent: Intent) -> Intent:
    """Return the intent with its gate closed while the dry run of the target revision has no result, or if the API server
    refused the revision. While the gate is closed, the revision does not start. A revision that has started, or that
    replaces nothing, needs no dry run.
    """
    target, others = intent.target, snapshot.slices.keys() - {intent.target}
    if not target or target not in intent.data or not others:
        return intent
    remark = snapshot.observed.remarks.get(target, "")
    if intent.gate.reason or snapshot.has_engines(target):
        return _warned(intent, remark)
    router = _router(snapshot, intent, target)
    manifests = _workloads(intent, target)
    key = f"{target}.{digest((*manifests, *router))}"
    answer = snapshot.observed.checks.get(key)
    if answer is None:
        waits = f" (no answer yet: {remark})" if remark else ""
        gate = RolloutGate(
            Reason.CHECKING, f"revision {target}: the API server checks its workloads and pods in a dry run{waits}"
        )
        pods = tuple(_questions(snapshot, intent, manifests, router))
        check = Check(key, manifests, pods, quota_change(snapshot, intent, router))
        return replace(intent, gate=gate, check=(check,))
    if answer:
        message = translate_errors(answer, snapshot.service, intent.resolved.runtime)
        gate = RolloutGate(Reason.DRY_RUN_REFUSED, f"revision {target} was refused by the API server: {message}")
        return replace(intent, gate=gate)
    return _warned(intent, remark)


def _warned(intent: Intent, remark: str) -> Intent:
    if not remark:
        return intent
    message = (
        f"the dry run did not check every pod of revision {intent.target}, and the revision is rolled out "
        f"nevertheless: {remark}"
    )
    return replace(intent, warnings=(*intent.warnings, message))


def _workloads(intent: Intent, revision: str) -> tuple[Manifest, ...]:
    """Return the StatefulSets of one group of each role of a revision, except roles without desired groups.

    The order of the StatefulSets does not depend on whether the revision was just made or has been read, so that the
    revision is checked only once.
    """
    manifests: list[Manifest] = []
    for name, role in sorted(intent.roles(revision).items(), reverse=True):
        manifests += stamp(intent.owner, role, range(min(1, intent.groups.get(name, 1))))
    return tuple(manifests)


def _router(snapshot: Snapshot, intent: Intent, revision: str) -> tuple[Manifest, ...]:
    """Return the Deployment of the router of a revision; () if the service has no router."""
    if intent.router is None:
        return ()
    return (routers.deployment(snapshot, intent, intent.router, revision, 1, ()),)


def _questions(
    snapshot: Snapshot, intent: Intent, manifests: Iterable[Manifest], router: Iterable[Manifest]
) -> Iterator[PodQuestion]:
    serves = _serving(snapshot, intent.target)
    present = {_place(manifest): _pod(manifest) for manifest in _workloads(intent, serves)}
    both = keys.DECODER in intent.roles(intent.target)
    for manifest in manifests:
        component, part = place = _place(manifest)
        counterpart = present.get(place) or present.get((component, _LEADER))
        yield PodQuestion(f"{role_title(component, both)} {part}", _pod(manifest), counterpart)
    for manifest in router:
        live = next((pod.name for pod in _pods(snapshot, serves) if pod.component == keys.ROUTER and pod.ready), "")
        yield PodQuestion(keys.ROUTER, _with_account(snapshot, sample_pods.of_deployment(manifest)), live=live)


def _place(manifest: Manifest) -> tuple[str, str]:
    """Return the component of a StatefulSet, and whether its pods are leaders or workers."""
    worker = bool(names.leader_of(manifest["metadata"]["name"]))
    return manifest["metadata"]["labels"][keys.COMPONENT], _WORKER if worker else _LEADER


def _pod(manifest: Manifest) -> Manifest:
    return sample_pods.of_stateful_set(manifest, (manifest["spec"].get("ordinals") or {}).get("start", 0))


def _serving(snapshot: Snapshot, target: str) -> str:
    """Return the revision, other than the target, with the most ready pods."""
    ready = {name: sum(pod.ready for pod in found.pods) for name, found in snapshot.slices.items() if name != target}
    return max(ready, key=lambda name: (ready[name], name))


def _pods(snapshot: Snapshot, revision: str) -> Iterator[Pod]:
    return (pod for pod in snapshot.slices[revision].pods if not pod.deleting)


def _with_account(snapshot: Snapshot, pod: Manifest) -> Manifest:
    """Return `pod`, a pod of the router. If the operator still has to create the ServiceAccount of the pod, the returned pod
    names no ServiceAccount.
    """
    account = names.component(snapshot.service.name, keys.ROUTER)
    if pod["spec"].get("serviceAccountName") != account or ("ServiceAccount", account) in snapshot.observed.children:
        return pod
    return {**pod, "spec": {name: value for name, value in pod["spec"].items() if name != "serviceAccountName"}}
