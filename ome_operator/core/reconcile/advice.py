"""Compute advice about the settings and the objects of a service: nothing is refused, but the result may differ from what
the user expects.
"""

from collections.abc import Iterable, Iterator, Mapping

from ome_operator import keys, names
from ome_operator.core.moves import moving
from ome_operator.core.observed.autoscalers import second_autoscalers, writer_of
from ome_operator.core.observed.budgets import second_budgets
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.observed.restored import other_namespace
from ome_operator.core.podspec import queues
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.render import exposure, probes, queue_advice, rdma, router, scaled_object, scaling, services, ssh
from ome_operator.core.render.statefulsets import roles_by_component
from ome_operator.core.resolve import durations
from ome_operator.core.resolve.scaling import unused_classes, unused_settings
from ome_operator.core.rollout import demand_fields, zero
from ome_operator.core.rollout.applied import applied_groups, demand_applies, is_overridden
from ome_operator.core.rollout.intent import Intent
from ome_operator.core.status.progress import RoleProgress
from ome_operator.util.wording import count

AVOIDED = 3
"""Number of avoided nodes that the advice names."""


def advice(snapshot: Snapshot, intent: Intent, scaled: Mapping[str, object]) -> tuple[str, ...]:
    """Return the sentences of the condition Advice about the settings of a service. `scaled` contains the components that
    have a RoleScale.
    """
    service = snapshot.service
    messages = [*intent.advice, *services.advice(service.annotations)]
    messages += exposure.advice(intent.owner, snapshot.deps.policy.exposure, service.annotations)
    if service.spec.router is not None:
        messages += router.advice(service.spec.router, "spec.router")
        if (runtime := intent.resolved.runtime) is not None:
            messages += router.advice(runtime.spec.router_config, f"runtime {runtime.name}: spec.routerConfig")
    if intent.router is not None:
        messages += router.split_cache_warning(intent.router, intent.groups.get(keys.ROUTER, 0))
    for name, one in intent.policies.items():
        scale = snapshot.controlled("RoleScale", names.component(intent.owner.name, name)) if name in scaled else None
        asked = scale.replicas if scale is not None and not scale.deleting else None
        messages += (woken := zero.advice(snapshot, name, intent.groups[name], asked, scaled=name in scaled))
        # The number in the RoleScale does not apply after a wake, or if the class Demand decides the number.
        asked = None if woken or applied_groups(snapshot, name) is not None else asked
        known = writer_of(snapshot.observed.autoscalers, names.component(intent.owner.name, name)) is not None
        if name in scaled and not known and is_overridden(snapshot, name, one):
            messages.append(_overridden(snapshot, name))
        messages += scaling.advice(intent.owner, name, one, intent.groups[name], asked, moves=moving.enabled(snapshot))
        messages += scaled_object.advice(intent.owner, name, one, enabled=snapshot.deps.policy.keda)
        messages += unused_settings(service, name, one)
    messages += unused_classes(service, intent.policies)
    messages += demand_fields.advice(service, intent.policies, intent.gpus)
    messages += zero.never_zero(service, intent.policies)
    messages += durations.advice(service, intent.resolved.runtime)
    messages += moving.advice(snapshot)
    messages += _restored(snapshot, intent)
    messages += _avoided(snapshot, intent)
    data = intent.data.get(intent.target) or {}
    messages += data.get("dropped") or ()
    messages += queue_advice.advice(roles_by_component(data), intent.groups, service.labels, intent.target)
    for part in (data.get("workloads") or {}).values():
        template = part["leader"]["spec"]["template"]
        boxes = [one["name"] for one in template["spec"]["containers"]]
        messages += rdma.advice(template["metadata"].get("annotations") or {}, boxes)
        messages += ssh.advice(template)
        messages += queues.advice(
            template["metadata"].get("annotations") or {}, str(template["spec"].get("schedulerName") or "")
        )
        if part["worker"]:
            messages += probes.advice(part["worker"]["spec"]["template"]["spec"])
    return tuple(dict.fromkeys(one for one in messages if one))


def cluster_warnings(
    snapshot: Snapshot, intent: Intent, manifests: Iterable[Manifest], far: tuple[RoleProgress, ...]
) -> tuple[str, ...]:
    """Return the sentences of the condition Advice that come from the state of the cluster: warnings of the API server,
    autoscalers that cannot scale, Deployments that cannot create pods, and disruption budgets and autoscalers that other
    clients created. `manifests` are the objects that should exist, `far` is the progress of each role.
    """
    messages = [*intent.warnings, *_unmetered(snapshot, intent, far), *_former_pods(snapshot, far)]
    namespace, manifests = snapshot.service.namespace, tuple(manifests)
    messages += second_budgets(snapshot.observed.budgets, manifests, namespace)
    applied = [name for name, one in intent.policies.items() if demand_applies(snapshot.service, one)]
    demanded = {names.component(intent.owner.name, name): name for name in applied}
    # The autoscalers of a namespace are read only for services of the class Demand. Those that other services see are
    # outdated.
    others = snapshot.observed.autoscalers if any(one.demand for one in intent.policies.values()) else ()
    messages += second_autoscalers(others, demanded, manifests, intent.owner.name, namespace)
    messages += snapshot.observed.warnings
    return tuple(dict.fromkeys(messages))


def _overridden(snapshot: Snapshot, component: str) -> str:
    name, namespace = snapshot.service.name, snapshot.service.namespace
    return (
        f"the number of {component} does not follow the demand, because somebody has set RoleScale "
        f"{names.component(name, component)} by hand: `ome scale {name} -n {namespace} --resume` lets the number follow "
        "the demand again"
    )


def _avoided(snapshot: Snapshot, intent: Intent) -> Iterator[str]:
    """Yield sentences about avoided nodes on which pods of the service run, or that its groups exclude."""
    own = (child for child in snapshot.observed.children.values() if child.owner == snapshot.service.uid)
    excluded = {node for child in own for node in child.excluded}
    near = sorted(({pod.node for pod in snapshot.pods} | excluded) & snapshot.observed.avoided.keys())
    for node in near[:AVOIDED]:
        used = "" if node in intent.fit.excluded else ", but the service uses it, because its groups fit on no other nodes"
        why = snapshot.observed.avoided[node]
        yield f"node {node} is avoided for new groups{used}: {why} (to use the node again: ome nodes forgive {node})"
    if (more := len(near) - AVOIDED) > 0:
        yield f"{count(more, 'other node')} {'is' if more == 1 else 'are'} avoided, too: `ome nodes` lists the avoided nodes"


def _restored(snapshot: Snapshot, intent: Intent) -> Iterator[str]:
    """Yield sentences about revisions that were rendered for another namespace, because the objects of a service were
    copied from there.
    """
    name, namespace = snapshot.service.name, snapshot.service.namespace
    for revision, place in snapshot.restored_revisions.items():
        stored = names.revision_object(name, revision)
        yield (
            f"revision {revision} was restored from a backup of namespace {place}, and its pods would contact the ranks "
            "there, so the operator does not use the revision and deletes its pods and workloads. Delete the revision "
            f"when you no longer need its history: `kubectl delete controllerrevision {stored} -n {namespace}`"
        )
    for one in snapshot.revisions:
        if one.name == intent.target and (place := other_namespace(one, name, namespace)):
            yield (
                f"revision {one.name} was made in namespace {place}, and its pods contact the ranks there: run `ome "
                f"restart {name} -n {namespace}`, which makes a revision with the addresses of this namespace"
            )


def _former_pods(snapshot: Snapshot, far: tuple[RoleProgress, ...]) -> list[str]:
    """Return a sentence for each Deployment whose new pods are refused while its former pods serve."""
    failures = snapshot.observed.pod_failures
    keys = (
        key for one in far if one.is_complete for key in one.role.workloads if key[0] == "Deployment" and failures.get(key)
    )
    return [f"Deployment {key[1]} cannot create pods, and the pods that it has serve: {failures[key]}" for key in keys]


def _unmetered(snapshot: Snapshot, intent: Intent, far: tuple[RoleProgress, ...]) -> list[str]:
    """Return a sentence for each HorizontalPodAutoscaler or ScaledObject that reports that it cannot scale. Pods that start
    have no metrics yet, so only complete roles are checked.
    """
    messages = []
    for role in (one.role.component for one in far if one.is_complete):
        name, policy = names.component(intent.owner.name, role), intent.policies.get(role)
        if policy is None:  # the spec no longer has this component, and its pods are about to end
            continue
        kinds = {"HorizontalPodAutoscaler": policy.autoscaled, "ScaledObject": policy.scaled_by_keda}
        for kind in (kind for kind, used in kinds.items() if used):
            found = snapshot.controlled(kind, name)
            if found is not None and found.message:
                messages.append(f"{kind} {name} does not scale: {found.message}")
    return messages
