"""Render the pod templates of engines: the composed pod spec, which each function in the list `FEATURES` extends, for
example with environment variables, volumes of weights, or probes.

To extend engine pods with something else, add a function to that list (docs/architecture.md).
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from ome_operator import keys, names, quantity
from ome_operator.core import compile_caches
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.observed.restored import LEADER_ADDRESS, OWN_GROUP, OWN_NAME
from ome_operator.core.podspec.compose import ComposedPods
from ome_operator.core.podspec.flags import flags, override_flags
from ome_operator.core.podspec.merge import merge
from ome_operator.core.preflight import container as preflight
from ome_operator.core.preflight.mode import OFF
from ome_operator.core.render import meta, probes, rdma, ssh
from ome_operator.core.selection.accelerator import OWN, parallel_sizes
from ome_operator.core.traces import pods as traces
from ome_operator.core.weights.mount import VOLUME, Mount, mount, with_directories
from ome_operator.engines import servers

DRAIN_MARGIN = 15
"""Seconds by which the termination grace period of a leader exceeds its longest request, so that endpoints are updated in
time (decisions 11)."""


class Context(NamedTuple):
    """The identity of a component's revision, and the objects that were selected for its pods."""

    service: str
    namespace: str
    revision: str
    weights: Sequence[Mapping[str, str]]
    """The weights that the pods mount, each as a dict with the fields of `core.weights.mount.Weights`: first the weights of
    the model, then the weights of its LoRA adapters."""
    accelerator: Mapping[str, Any]
    """Settings that the selected accelerator class adds to this component; {} if no class was selected."""
    directories: Sequence[str] = ()
    """Directories of the revisions of the weights, in the order of `weights`; see `core.weights.mount.mount`."""
    labels: Mapping[str, str] = MappingProxyType({})
    """The labels that OME sets on pods (`core/resolve/ome_labels.py`). A label that the user sets takes precedence."""
    collector: str = ""
    """HOST:PORT of the collector that receives spans; "" disables tracing. Set it only if `traces_refusal` returns ""."""
    title: str = ""
    """The role that spans contain: engine, prefill or decode."""
    preflight: str = OFF
    """The mode of the preflight check that runs before the engine starts."""
    caches: str = ""
    """Root directory of the agents' compile caches; "" if the pods get no cache. Set it only if `compile_caches.refusal`
    returns ""."""


class RankContext(NamedTuple):
    """The pod to render: the leader of a group, or any of its workers."""

    context: Context
    composed: ComposedPods
    """The composed pods of the group. Its labels and annotations belong to the rank that is rendered."""
    is_leader: bool

    @property
    def annotations(self) -> Mapping[str, str]:
        """The annotations of this rank's pod."""
        return self.composed.annotations

    @property
    def leader(self) -> Manifest:
        """The engine container of the group's leader, with its complete command line."""
        return command_line(self.composed.leader["containers"][0], self.context)


PodFeature = Callable[[Manifest, RankContext], Manifest]
"""A function that returns the pod spec of a rank with an extension, for example with probes. The function does not modify
its argument, and returns the argument itself if the rank does not need the extension."""


def leader(context: Context, composed: ComposedPods) -> Manifest:
    """Return the pod template of rank 0."""
    return _template(RankContext(context, composed, is_leader=True), composed.leader, {keys.WORKER_INDEX: "0"})


def worker(context: Context, composed: ComposedPods) -> Manifest:
    """Return the pod template of the ranks above 0. `statefulsets.stamp` later adds the label `ome.io/group`, as it does for
    the leader.
    """
    if composed.worker is None:
        raise ValueError("a group of a single pod has no workers")
    own = composed._replace(labels=composed.worker_labels, annotations=composed.worker_annotations)
    return _template(RankContext(context, own, is_leader=False), composed.worker, {})


def traces_refusal(context: Context, composed: ComposedPods) -> str:
    """Return a sentence that explains why the engines of a group cannot send spans, or "" if all ranks can send spans."""
    pods = [composed.leader, *([composed.worker] if composed.worker is not None and composed.size > 1 else [])]
    mains = (command_line(pod["containers"][0], context) for pod in pods)
    refusals = (traces.why_not(main, composed.annotations, context.title) for main in mains)
    return next((why for why in refusals if why), "")


def command_line(container: Manifest, context: Context) -> Manifest:
    """Return the engine container with the arguments that the accelerator class and the LoRA adapters add."""
    main = dict(container)
    if extra := context.accelerator.get("args"):
        main["args"] = override_flags(main.get("args") or [], extra)
    if sizes := parallel_sizes(context.accelerator):
        own = {*flags(extra or ()), *(context.accelerator.get(OWN) or ())}
        main = servers.with_parallelism(main, sizes, own)
    return servers.with_adapters(main, {adapter["name"]: adapter["path"] for adapter in context.weights[1:]})


def _template(rank: RankContext, pod: Manifest, more: Mapping[str, str]) -> Manifest:
    context, composed = rank.context, rank.composed
    main, *others = pod["containers"]
    spec = {**pod, "containers": [command_line(main, context), *others]}
    for feature in FEATURES:
        spec = feature(spec, rank)
    users = {key: value for key, value in composed.labels.items() if key not in (keys.WORKER_INDEX, keys.GROUP_INDEX)}
    labels = {**context.labels, **users, **meta.labels(context.service, composed.component, context.revision), **more}
    return {"metadata": {"labels": labels, **_annotations(composed)}, "spec": spec}


def _environment(pod: Manifest, rank: RankContext) -> Manifest:
    """Add environment variables: the pod's identity, its rank and group, its model, and the variables of the accelerator
    class.
    """
    context, composed = rank.context, rank.composed
    group = _leader_env(context, composed) if rank.is_leader else _worker_env(context, composed)
    model = [
        {"name": "MODEL_PATH", "value": context.weights[0]["path"]},
        {"name": "PARALLELISM_SIZE", "value": str(_parallelism(context, composed))},
    ]
    main = add_env(pod["containers"][0], [*base_env(context.service, context.namespace), *group, *model])
    if env := context.accelerator.get("env"):
        main["env"] = merge(main["env"], [{"name": name, "value": value} for name, value in env.items()], "env")
    return {**pod, "containers": [main, *pod["containers"][1:]]}


def _weights(pod: Manifest, rank: RankContext) -> Manifest:
    """Mount the directories of the model and of the LoRA weights, and require or prefer nodes that have them."""
    context, spec = rank.context, dict(pod)
    for weights, directory in with_directories(context.weights, context.directories):
        volume = VOLUME if weights is context.weights[0] else f"{VOLUME}-{names.digest(weights['name'])}"
        mounted = mount(weights, context.namespace, volume, directory)
        spec = _with_weights(spec, mounted)
        if mounted.affinity:
            spec["affinity"] = require(spec.get("affinity") or {}, mounted.affinity)
        if mounted.preferred:
            spec["affinity"] = add_preferred_nodes(spec["affinity"], mounted.preferred)
    return spec


def _nodes(pod: Manifest, rank: RankContext) -> Manifest:
    """Add the node selector of the accelerator class; a label from the user takes precedence."""
    selector = rank.context.accelerator.get("nodeSelector")
    return {**pod, "nodeSelector": {**selector, **(pod.get("nodeSelector") or {})}} if selector else pod


def _rdma(pod: Manifest, rank: RankContext) -> Manifest:
    return rdma.inject_rdma(pod, rank.annotations)


def _ssh_keys(pod: Manifest, rank: RankContext) -> Manifest:
    return ssh.inject_ssh(pod, rank.annotations, rank.context.service)


def _defaults(pod: Manifest, rank: RankContext) -> Manifest:
    """Set the defaults of the operator for fields of the pod spec that the user left unset."""
    spec = dict(pod)
    spec.setdefault("automountServiceAccountToken", False)
    spec.setdefault("enableServiceLinks", False)
    if rank.composed.timeout and rank.is_leader:
        spec.setdefault("terminationGracePeriodSeconds", max(30, rank.composed.timeout + DRAIN_MARGIN))
    return {
        **spec,
        "containers": [{"terminationMessagePolicy": "FallbackToLogsOnError", **box} for box in pod["containers"]],
    }


def _probes(pod: Manifest, rank: RankContext) -> Manifest:
    return probes.with_probes(pod, port(pod["containers"][0]) if rank.is_leader else None)


def _traces(pod: Manifest, rank: RankContext) -> Manifest:
    context = rank.context
    if not context.collector:
        return pod
    origin = traces.SpanOrigin(context.service, context.namespace, context.revision, context.title)
    main, *others = pod["containers"]
    return {**pod, "containers": [traces.add_trace_arguments(main, context.collector, origin), *others]}


def _compile_cache(pod: Manifest, rank: RankContext) -> Manifest:
    context, composed = rank.context, rank.composed
    written = composed.leader if rank.is_leader else composed.worker
    if not context.caches or written is None:
        return pod
    main = command_line(written["containers"][0], context)
    command = [main.get(field) for field in ("image", "command", "args", "env")]
    settings = context.accelerator.get("env"), _parallelism(context, composed)
    identity = [context.service, composed.component, rank.is_leader, composed.size, *command, *settings]
    directory = compile_caches.directory(context.caches, context.namespace, identity)
    return compile_caches.with_cache(pod, directory, port(rank.leader, 0))


def _preflight(pod: Manifest, rank: RankContext) -> Manifest:
    context, composed = rank.context, rank.composed
    if context.preflight == OFF:
        return pod
    identity = context.service, context.namespace, context.revision
    facts = preflight.group(*identity, composed.component, composed.size, port(rank.leader, 0))
    return preflight.add_preflight_check(pod, context.preflight, facts)


FEATURES: tuple[PodFeature, ...] = (
    _environment,
    _weights,
    _nodes,
    _rdma,
    _ssh_keys,
    _defaults,
    _probes,
    _traces,
    _compile_cache,
    _preflight,  # must be last, because its container is a copy of the engine container
)
"""The functions that extend the pod spec of every engine pod beyond what runtime and service specify, in the order in which
they are applied."""


def _with_weights(pod: Manifest, weights: Mount) -> Manifest:
    """Mount the model's directory in the main container, unless the user mounts a volume at the same path."""
    main = pod["containers"][0]
    mounts, volumes = main.get("volumeMounts") or [], pod.get("volumes") or []
    if any(entry["mountPath"].rstrip("/") == weights.mount["mountPath"] for entry in mounts):
        return pod
    name, taken = weights.volume["name"], {entry["name"] for entry in volumes}
    while name in taken:
        name += "-weights"
    main = {**main, "volumeMounts": [*mounts, {**weights.mount, "name": name}]}
    volumes = [*volumes, {**weights.volume, "name": name}]
    return {**pod, "containers": [main, *pod["containers"][1:]], "volumes": volumes}


def _annotations(composed: ComposedPods) -> Manifest:
    return {"annotations": dict(composed.annotations)} if composed.annotations else {}


def _parallelism(context: Context, composed: ComposedPods) -> int:
    chosen = context.accelerator.get("parallelism")
    return int(chosen) if chosen else max(1, quantity.gpus(composed.leader["containers"][0])) * composed.size


def base_env(service: str, namespace: str) -> list[Manifest]:
    """Return the environment variables that the main container of every pod of a service gets, including routers."""
    return [
        {"name": "INFERENCESERVICE_NAME", "value": service},
        {"name": "NAMESPACE", "value": namespace},
        {"name": "POD_NAME", "valueFrom": field_reference("metadata.name")},
        {"name": "POD_IP", "valueFrom": field_reference("status.podIP")},
    ]


def field_reference(path: str) -> Manifest:
    """Return a downward API reference to a field. The reference contains apiVersion, because the API server would otherwise
    add the default inside an atomic map, and the stored object would differ from the applied manifest.
    """
    return {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}


def _leader_env(context: Context, composed: ComposedPods) -> list[Manifest]:
    address = names.address(OWN_NAME, context.service, context.namespace)
    return [
        {"name": "LWS_GROUP_INDEX", "valueFrom": field_reference(f"metadata.labels['{keys.GROUP_INDEX}']")},
        {"name": LEADER_ADDRESS, "value": address},
        {"name": "LWS_GROUP_SIZE", "value": str(composed.size)},
        {"name": "LWS_WORKER_INDEX", "value": "0"},
    ]


def _worker_env(context: Context, composed: ComposedPods) -> list[Manifest]:
    stem = names.object_prefix(context.service, composed.component, context.revision)
    address = names.address(names.leader_pod(stem, OWN_GROUP), context.service, context.namespace)
    return [
        {"name": "LWS_GROUP_INDEX", "valueFrom": field_reference(f"metadata.labels['{keys.GROUP_INDEX}']")},
        {"name": LEADER_ADDRESS, "value": address},
        {"name": "LWS_GROUP_SIZE", "value": str(composed.size)},
        {"name": "LWS_WORKER_INDEX", "valueFrom": field_reference(f"metadata.labels['{keys.POD_INDEX}']")},
    ]


def add_env(container: Manifest, ours: list[Manifest]) -> Manifest:
    """Return the container with the operator's variables `ours` before the user's variables, so that the user's variables
    can refer to them. A variable that the user set keeps the user's value.

    The kubelet expands a reference only if the variable stands earlier in the list, and the variables in `ours` refer to
    each other. A user's variable with the same name as a variable in `ours` therefore takes the place of that variable,
    unless its value contains references.
    """
    theirs = {variable["name"]: variable for variable in container.get("env") or ()}
    first = {variable["name"]: variable for variable in ours}
    for name in first.keys() & theirs.keys():
        if "$(" in str(theirs[name].get("value", "")):
            del first[name]
        else:
            first[name] = theirs.pop(name)
    return {**container, "env": [*first.values(), *theirs.values()]}


def require(affinity: Manifest, expression: Manifest) -> Manifest:
    """Return the affinity with one more required node expression. The expression is added to every term, because terms
    are alternatives (OR).
    """
    node = dict(affinity.get("nodeAffinity") or {})
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or [{}]
    wider = [{**term, "matchExpressions": [*(term.get("matchExpressions") or ()), expression]} for term in terms]
    node["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": wider}
    return {**affinity, "nodeAffinity": node}


def add_preferred_nodes(affinity: Manifest, expression: Manifest) -> Manifest:
    """Return the affinity with one more preferred node expression."""
    node = dict(affinity.get("nodeAffinity") or {})
    existing = node.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    preference = {"weight": 1, "preference": {"matchExpressions": [expression]}}
    node["preferredDuringSchedulingIgnoredDuringExecution"] = [*existing, preference]
    return {**affinity, "nodeAffinity": node}


def port(container: Mapping[str, Any], default: int = 8080) -> int:
    """Return the port on which a container serves HTTP, which is the first of these that exists: the port whose name starts
    with http, the first port, the `--port` argument, the default port of the engine, and `default`.
    """
    ports = container.get("ports") or ()
    for entry in sorted(ports, key=lambda entry: not str(entry.get("name", "")).startswith("http")):
        return int(entry["containerPort"])
    parts = (*(container.get("command") or ()), *(container.get("args") or ()))
    words = [word for part in parts for word in str(part).split()]
    for before, word in pairwise(words):
        if before == "--port" and (number := quantity.whole_number(word)) is not None:
            return number
    known = servers.server(container)
    numbers = (quantity.whole_number(word[7:]) for word in words if word.startswith("--port="))
    return next((entry for entry in numbers if entry is not None), known.port if known else default)
