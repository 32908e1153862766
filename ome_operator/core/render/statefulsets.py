"""Render the StatefulSets of a revision once, and store them as templates. Later, StatefulSets are written from the stored
templates (decisions 3).

`workloads` is the renderer; its result is stored in the ControllerRevision. Later only `stamp` runs, which sets the name and
label of a group in the stored template, the nodes that the group excludes and, for pods in a queue of Kueue, the pod group.
An object that is repaired, or a group that a newer operator adds, therefore equals the other groups.

Each group has a StatefulSet of one pod, its leader, and, if it has more pods, a StatefulSet of its workers. A group thus has
a fixed size, and can be created, replaced and deleted independently of its number (decisions 22).
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ome_operator import keys, names, quantity
from ome_operator.core import compile_caches
from ome_operator.core.observed.exclusions import Exclusion
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.podspec.compose import ComposedPods, compose
from ome_operator.core.podspec.queues import with_queue
from ome_operator.core.preflight.mode import OFF, mode
from ome_operator.core.render import meta, pod_groups, pod_template
from ome_operator.core.render.exclusion import exclude_nodes
from ome_operator.core.resolve.finetuned import mounted_weights
from ome_operator.core.selection.accelerator import unset_by_service
from ome_operator.core.traces.collector import endpoint
from ome_operator.engines import servers
from ome_operator.util.memoize import memoize_by_identity

RENDER = 3
"""Version of the format in which `workloads` stores templates and `stamp` reads them. CONTRIBUTING.md states when the
version has to be raised. A change of the contents of new templates is no reason to raise it."""
OLDEST = 3
"""Oldest version of the renderer whose stored templates can still be used. Older versions rendered one StatefulSet for all
leaders of a role."""


class StoredRole(NamedTuple):
    """One role of a stored revision."""

    component: str
    size: int
    """Number of pods per group."""
    port: int
    """Port on which leaders serve HTTP."""
    leader: Manifest
    """Template for the StatefulSet of a group's leader, without owner and namespace, and without the group in its name
    and labels."""
    worker: Manifest | None
    """Template for the StatefulSet of a group's workers, in the same form as `leader`; None for groups of one pod."""
    pod_group: str = ""
    """`pod_groups.KUEUE` if `stamp` names the pods of each group as a pod group of Kueue, otherwise ""."""


class Defaults(NamedTuple):
    """The settings of the operator that affect new templates and are not part of a revision's inputs."""

    preflight: str = OFF
    """The preflight mode if the inputs name no mode."""
    caches: str = ""
    """The root directory of the agents' compile caches; "" if agents keep none."""


NO_DEFAULTS = Defaults()


def workloads(
    service: str,
    namespace: str,
    revision: str,
    inputs: Mapping[str, Any],
    directories: Sequence[str] = (),
    labels: Mapping[str, str] = MappingProxyType({}),
    defaults: Defaults = NO_DEFAULTS,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the data that a ControllerRevision stores with the inputs, and sentences about settings that were dropped.
    Raises ProblemError if the inputs cannot be rendered.

    The data is JSON: it maps each component to an object with the fields size, port, leader and worker, and with podGroup if
    its pods wait in a queue of Kueue. `directories` contains the directory of the model's weights, followed by the directory
    of the weights of each adapter; "" for weights that are stored at the path of the model or adapter itself. `labels` are
    OME's labels; labels from the user take precedence.
    """
    out: dict[str, Any] = {}
    dropped: list[str] = []
    for component in (keys.ENGINE, keys.DECODER):
        if component not in inputs:
            continue
        composed = with_queue(compose(component, inputs["runtime"], inputs[component]), (inputs.get("queue") or {}).items())
        accelerator = unset_by_service((inputs.get("accelerator") or {}).get(component) or {}, inputs[component])
        context = pod_template.Context(
            service, namespace, revision, mounted_weights(inputs), accelerator, directories, labels
        )
        out[component], warnings = _role(context, composed, inputs, defaults)
        dropped += warnings
    return out, tuple(dict.fromkeys(dropped))


def _role(
    context: pod_template.Context, composed: ComposedPods, inputs: Mapping[str, Any], defaults: Defaults
) -> tuple[Manifest, list[str]]:
    """Return the data that a revision stores for a component, and sentences about settings that were dropped."""
    component, warnings = composed.component, list[str]()
    context = context._replace(
        collector=endpoint(inputs, component),
        title=names.role_title(component, keys.DECODER in inputs),
        preflight=mode(inputs, component, defaults.preflight),
    )
    if context.collector and (why := pod_template.traces_refusal(context, composed)):
        context, warnings = context._replace(collector=""), [why]
    if compile_caches.requested(inputs, component):
        pods = [pod for pod in (composed.leader, composed.worker) if pod is not None]
        if why := compile_caches.refusal(defaults.caches, context.accelerator.get("env") or (), *pods):
            warnings.append(f"{component}: {why}")
        else:
            context = context._replace(caches=defaults.caches)
    leader = pod_template.leader(context, composed)
    worker = pod_template.worker(context, composed) if composed.size > 1 else None
    main = leader["spec"]["containers"][0]
    warnings += composed.dropped
    if context.weights[1:] and not servers.takes_adapters(composed.leader["containers"][0]):
        warnings.append(
            f"{component}: fineTunedWeights are mounted but not passed to the engine, because the engine is not known "
            "to accept adapters or a shell starts it: add the directories of the weights to its args"
        )
    leaders, workers = _leader_set(context, composed, leader), _worker_set(context, composed, worker) if worker else None
    named = pod_groups.kind(leaders, workers)
    role = {
        "size": composed.size,
        "port": pod_template.port(main, 30000 if "decoder" in inputs else 8080),
        "leader": leaders,
        "worker": workers,
        **({"podGroup": named} if named else {}),
    }
    return role, warnings


@memoize_by_identity(1024)
def roles_by_component(data: Mapping[str, Any]) -> Mapping[str, StoredRole]:
    """Return the roles of a stored revision by component."""
    return {
        name: StoredRole(
            name, int(role["size"]), int(role["port"]), role["leader"], role.get("worker"), str(role.get("podGroup") or "")
        )
        for name, role in (data.get("workloads") or {}).items()
    }


@memoize_by_identity(2048)
def gpus(role: StoredRole) -> int:
    """Return the number of GPUs of one group of a role."""
    worker = pod_gpus(role.worker) * (role.size - 1) if role.worker is not None else 0
    return pod_gpus(role.leader) + worker


def pod_gpus(workload: Manifest) -> int:
    """Return the number of GPUs of one pod of a workload."""
    return sum(quantity.gpus(box) for box in workload["spec"]["template"]["spec"].get("containers") or ())


def stamp(
    owner: meta.Owner, role: StoredRole, groups: Iterable[int], excluded: Mapping[int, Exclusion] = MappingProxyType({})
) -> list[Manifest]:
    """Return the StatefulSets of the groups `groups` (numbers) of a role, made from the stored templates. Each group has
    a StatefulSet for its leader and, if it has workers, a StatefulSet for the workers.

    `excluded` maps the number of a group to the nodes on which its pods are not placed. It must not change for a group that
    exists: its pods would no longer have the template of their StatefulSet.
    """
    manifests = []
    for group in groups:
        leader, nodes = names.leader(statefulset_prefix(role), group), excluded.get(group, ())
        together = (leader, role.size) if role.pod_group == pod_groups.KUEUE else ()
        manifests.append(_stamp(owner, role.leader, leader, group, 1, together, nodes))
        if role.worker is not None:
            workers = names.worker(statefulset_prefix(role), group)
            manifests.append(_stamp(owner, role.worker, workers, group, role.size - 1, together, nodes))
    return manifests


def set_names(role: StoredRole, group: int) -> list[str]:
    """Return the names of the StatefulSets of a group."""
    workers = [names.worker(statefulset_prefix(role), group)] if role.worker is not None else []
    return [names.leader(statefulset_prefix(role), group), *workers]


def statefulset_prefix(role: StoredRole) -> str:
    """Return the prefix of the names of a role's StatefulSets."""
    return str(role.leader["metadata"]["name"])


@memoize_by_identity(16384)
def _stamp(
    owner: meta.Owner,
    template: Manifest,
    name: str,
    group: int,
    replicas: int,
    together: tuple[str, int] | tuple[()],
    excluded: Exclusion,
) -> Manifest:
    """Return the StatefulSet of a group. `together` is the name of the group's Kueue pod group and the number of its pods,
    or () without a pod group. `excluded` contains the nodes on which the pods of the group are not placed. Equal labels are
    the same object, because there may be 20,000 StatefulSets.
    """
    mark = {keys.GROUP_INDEX: str(group)}
    spec, inner = template["spec"], template["spec"]["template"]
    found = meta.manifest(owner, "apps/v1", "StatefulSet", name, {**template["metadata"]["labels"], **mark}, {})
    labels = found["metadata"]["labels"]
    selected, marked = ({**each, **mark} for each in (spec["selector"]["matchLabels"], inner["metadata"]["labels"]))
    selected, marked = (labels if each == labels else each for each in (selected, marked))
    metadata = {**inner["metadata"], "labels": marked}
    if together:
        metadata = pod_groups.with_pod_group(metadata, *together)
    pods = {**inner, "metadata": metadata}
    if excluded:
        pods["spec"] = exclude_nodes(inner["spec"], excluded)
    selector = {**spec["selector"], "matchLabels": selected}
    found["spec"] = {**spec, "selector": selector, "template": pods, "replicas": replicas}
    if excluded:
        found["metadata"]["annotations"] = {keys.EXCLUDED_NODES: ",".join(excluded)}
    return found


def _leader_set(context: pod_template.Context, composed: ComposedPods, template: Manifest) -> Manifest:
    return _stateful_set(context, composed.component, template, {keys.WORKER_INDEX: "0"}, {})


def _worker_set(context: pod_template.Context, composed: ComposedPods, template: Manifest) -> Manifest:
    # Ordinals start at 1 so that the pod index is the rank. Groups are only deleted as a whole, never by their highest rank.
    workers = _stateful_set(context, composed.component, template, {}, {"ordinals": {"start": 1}})
    # The leader has the labels of the workers and one more. The expression uses this label to exclude the leader.
    workers["spec"]["selector"]["matchExpressions"] = [{"key": keys.WORKER_INDEX, "operator": "DoesNotExist"}]
    return workers


def _stateful_set(
    context: pod_template.Context, component: str, template: Manifest, marks: Mapping[str, str], more: Manifest
) -> Manifest:
    labels = meta.labels(context.service, component, context.revision)
    spec = {
        "serviceName": names.headless(context.service),
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "revisionHistoryLimit": 1,
        "selector": {"matchLabels": {**labels, **marks}},
        "template": template,
        **more,
    }
    name = names.object_prefix(context.service, component, context.revision)
    return {"metadata": {"name": name, "labels": {**labels, **marks}}, "spec": spec}
