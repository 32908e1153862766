"""Pod templates of engines: the composed pod spec, and on top of it a list of features (`FEATURES`), each a function.

A new feature of engine pods is another function in that list (docs/architecture.md).
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from ome_operator import keys, names, quantity
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.podspec.compose import Composed
from ome_operator.core.podspec.flags import flags, override
from ome_operator.core.podspec.merge import merge
from ome_operator.core.preflight import container as preflight
from ome_operator.core.preflight.mode import OFF
from ome_operator.core.render import meta, probes, rdma, ssh
from ome_operator.core.selection.accelerator import OWN, divided
from ome_operator.core.traces import pods as traces
from ome_operator.core.weights.mount import VOLUME, Mount, mount, placed
from ome_operator.engines import servers

DRAIN_MARGIN = 15
"""Seconds that a leader gets beyond its longest request, for endpoints to notice that it goes (decisions 11)."""


class Context(NamedTuple):
    """Where the pods of a component belong, and what was chosen for them."""

    service: str
    namespace: str
    revision: str
    weights: Sequence[Mapping[str, str]]
    """Stored identities (`core.weights.mount.Weights` as dicts) of the model and of LoRA weights."""
    accelerator: Mapping[str, Any]
    """What the chosen accelerator class adds to this component, {} without one."""
    directories: Sequence[str] = ()
    """Directories of their revisions, in the same order; see `core.weights.mount.mount`."""
    labels: Mapping[str, str] = MappingProxyType({})
    """Labels of OME; a label that the user wrote takes precedence."""
    collector: str = ""
    """HOST:PORT that spans are sent to, "" for no spans. Only for a group of which `traces_refusal` is ""."""
    title: str = ""
    """The role that spans name: engine, prefill or decode."""
    preflight: str = OFF
    """The mode of the check before the engine starts."""


class RankContext(NamedTuple):
    """The pod of a group that is rendered: its leader, or any of its workers."""

    context: Context
    composed: Composed
    """Of its group; labels and annotations are those of this rank."""
    leads: bool

    @property
    def annotations(self) -> Mapping[str, str]:
        """The annotations of this rank's pod."""
        return self.composed.annotations

    @property
    def leader(self) -> Manifest:
        """The engine's container of the group's leader, with its whole command line."""
        return command_line(self.composed.leader["containers"][0], self.context)


PodFeature = Callable[[Manifest, RankContext], Manifest]
"""Adds a feature to the pod spec of a rank, and returns the new spec; the spec that it gets is never changed."""


def leader(context: Context, composed: Composed) -> Manifest:
    """Pod template of rank 0."""
    return _template(RankContext(context, composed, leads=True), composed.leader, {keys.WORKER_INDEX: "0"})


def worker(context: Context, composed: Composed) -> Manifest:
    """Pod template of the ranks above 0. Like the leader's, it gets the label `ome.io/group` when a group is stamped."""
    if composed.worker is None:
        raise ValueError("a group of a single pod has no workers")
    own = composed._replace(labels=composed.worker_labels, annotations=composed.worker_annotations)
    return _template(RankContext(context, own, leads=False), composed.worker, {})


def traces_refusal(context: Context, composed: Composed) -> str:
    """Why the engines of a group cannot send spans, as a sentence; "" if each of its ranks can."""
    pods = [composed.leader, *([composed.worker] if composed.worker is not None and composed.size > 1 else [])]
    mains = (command_line(pod["containers"][0], context) for pod in pods)
    refusals = (traces.why_not(main, composed.annotations, context.title) for main in mains)
    return next((why for why in refusals if why), "")


def command_line(container: Manifest, context: Context) -> Manifest:
    """The engine's container with the arguments that the accelerator class and LoRA adapters add."""
    main = dict(container)
    if extra := context.accelerator.get("args"):
        main["args"] = override(main.get("args") or [], extra)
    if sizes := divided(context.accelerator):
        own = {*flags(extra or ()), *(context.accelerator.get(OWN) or ())}
        main = servers.with_parallelism(main, sizes, own)
    return servers.with_adapters(main, {each["name"]: each["path"] for each in context.weights[1:]})


def _template(rank: RankContext, pod: Manifest, marks: Mapping[str, str]) -> Manifest:
    context, composed = rank.context, rank.composed
    main, *others = pod["containers"]
    spec = {**pod, "containers": [command_line(main, context), *others]}
    for feature in FEATURES:
        spec = feature(spec, rank)
    theirs = {key: value for key, value in composed.labels.items() if key not in (keys.WORKER_INDEX, keys.GROUP_INDEX)}
    labels = {**context.labels, **theirs, **meta.labels(context.service, composed.component, context.revision), **marks}
    return {"metadata": {"labels": labels, **_annotations(composed)}, "spec": spec}


def _environment(pod: Manifest, rank: RankContext) -> Manifest:
    """Variables with the pod's identity, its place in the group, its model, and what the accelerator class sets."""
    context, composed = rank.context, rank.composed
    group = _leader_env(context, composed) if rank.leads else _worker_env(context, composed)
    model = [
        {"name": "MODEL_PATH", "value": context.weights[0]["path"]},
        {"name": "PARALLELISM_SIZE", "value": str(_parallelism(context, composed))},
    ]
    main = add_env(pod["containers"][0], [*base_env(context.service, context.namespace), *group, *model])
    if env := context.accelerator.get("env"):
        main["env"] = merge(main["env"], [{"name": name, "value": value} for name, value in env.items()], "env")
    return {**pod, "containers": [main, *pod["containers"][1:]]}


def _weights(pod: Manifest, rank: RankContext) -> Manifest:
    """The directories of the model and of LoRA weights, and an affinity to the nodes that hold them."""
    context, spec = rank.context, dict(pod)
    for weights, directory in placed(context.weights, context.directories):
        volume = VOLUME if weights is context.weights[0] else f"{VOLUME}-{names.digest(weights['name'])}"
        mounted = mount(weights, context.namespace, volume, directory)
        spec = _with_weights(spec, mounted)
        if mounted.affinity:
            spec["affinity"] = require(spec.get("affinity") or {}, mounted.affinity)
        if mounted.preferred:
            spec["affinity"] = prefer(spec["affinity"], mounted.preferred)
    return spec


def _nodes(pod: Manifest, rank: RankContext) -> Manifest:
    """The node selector of the accelerator class; a label that the user wrote takes precedence."""
    selector = rank.context.accelerator.get("nodeSelector")
    return {**pod, "nodeSelector": {**selector, **(pod.get("nodeSelector") or {})}} if selector else pod


def _rdma(pod: Manifest, rank: RankContext) -> Manifest:
    return rdma.inject(pod, rank.annotations)


def _ssh_keys(pod: Manifest, rank: RankContext) -> Manifest:
    return ssh.inject(pod, rank.annotations, rank.context.service)


def _defaults(pod: Manifest, rank: RankContext) -> Manifest:
    """Fields of the pod spec that the user left open."""
    spec = dict(pod)
    spec.setdefault("automountServiceAccountToken", False)
    spec.setdefault("enableServiceLinks", False)
    if rank.composed.timeout and rank.leads:
        spec.setdefault("terminationGracePeriodSeconds", max(30, rank.composed.timeout + DRAIN_MARGIN))
    return {
        **spec,
        "containers": [{"terminationMessagePolicy": "FallbackToLogsOnError", **box} for box in pod["containers"]],
    }


def _probes(pod: Manifest, rank: RankContext) -> Manifest:
    return probes.watched(pod, port(rank.leader) if rank.leads else None)


def _traces(pod: Manifest, rank: RankContext) -> Manifest:
    context = rank.context
    if not context.collector:
        return pod
    origin = traces.SpanOrigin(context.service, context.namespace, context.revision, context.title)
    main, *others = pod["containers"]
    return {**pod, "containers": [traces.traced(main, context.collector, origin), *others]}


def _preflight(pod: Manifest, rank: RankContext) -> Manifest:
    context, composed = rank.context, rank.composed
    if context.preflight == OFF:
        return pod
    whose = context.service, context.namespace, context.revision
    facts = preflight.group(*whose, composed.component, composed.size, port(rank.leader, 0))
    return preflight.guarded(pod, context.preflight, facts)


FEATURES: tuple[PodFeature, ...] = (
    _environment,
    _weights,
    _nodes,
    _rdma,
    _ssh_keys,
    _defaults,
    _probes,
    _traces,
    _preflight,  # last: its container copies the engine's
)
"""What every engine pod gets beyond runtime and service, in this order."""


def _with_weights(pod: Manifest, weights: Mount) -> Manifest:
    """The pod with the model's directory in its main container, unless the user mounts something there."""
    main = pod["containers"][0]
    mounts, volumes = main.get("volumeMounts") or [], pod.get("volumes") or []
    if any(one["mountPath"].rstrip("/") == weights.mount["mountPath"] for one in mounts):
        return pod
    name, taken = weights.volume["name"], {one["name"] for one in volumes}
    while name in taken:
        name += "-weights"
    main = {**main, "volumeMounts": [*mounts, {**weights.mount, "name": name}]}
    volumes = [*volumes, {**weights.volume, "name": name}]
    return {**pod, "containers": [main, *pod["containers"][1:]], "volumes": volumes}


def _annotations(composed: Composed) -> Manifest:
    return {"annotations": dict(composed.annotations)} if composed.annotations else {}


def _parallelism(context: Context, composed: Composed) -> int:
    chosen = context.accelerator.get("parallelism")
    return int(chosen) if chosen else max(1, quantity.gpus(composed.leader["containers"][0])) * composed.size


def base_env(service: str, namespace: str) -> list[Manifest]:
    """Variables of every container that we start, routers included."""
    return [
        {"name": "INFERENCESERVICE_NAME", "value": service},
        {"name": "NAMESPACE", "value": namespace},
        {"name": "POD_NAME", "valueFrom": field("metadata.name")},
        {"name": "POD_IP", "valueFrom": field("status.podIP")},
    ]


def field(path: str) -> Manifest:
    """A downward API reference; apiVersion is said because the server would add it inside an atomic map."""
    return {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}


def _leader_env(context: Context, composed: Composed) -> list[Manifest]:
    address = f"$(POD_NAME).{names.headless(context.service)}.{context.namespace}"
    return [
        {"name": "LWS_GROUP_INDEX", "valueFrom": field(f"metadata.labels['{keys.GROUP_INDEX}']")},
        {"name": "LWS_LEADER_ADDRESS", "value": address},
        {"name": "LWS_GROUP_SIZE", "value": str(composed.size)},
        {"name": "LWS_WORKER_INDEX", "value": "0"},
    ]


def _worker_env(context: Context, composed: Composed) -> list[Manifest]:
    stem = names.stem(context.service, composed.component, context.revision)
    leader = names.leader_pod(stem, "$(LWS_GROUP_INDEX)")
    address = f"{leader}.{names.headless(context.service)}.{context.namespace}"
    return [
        {"name": "LWS_GROUP_INDEX", "valueFrom": field(f"metadata.labels['{keys.GROUP_INDEX}']")},
        {"name": "LWS_LEADER_ADDRESS", "value": address},
        {"name": "LWS_GROUP_SIZE", "value": str(composed.size)},
        {"name": "LWS_WORKER_INDEX", "valueFrom": field(f"metadata.labels['{keys.POD_INDEX}']")},
    ]


def add_env(container: Manifest, ours: list[Manifest]) -> Manifest:
    """The container with our variables first, so that the user's may refer to them; a variable the user set stays his.

    A reference sees only what stands before it, and ours refer to each other: a user's variable of our name takes our
    place, unless it refers to others itself.
    """
    theirs = {one["name"]: one for one in container.get("env") or ()}
    first = {one["name"]: one for one in ours}
    for name in first.keys() & theirs.keys():
        if "$(" in str(theirs[name].get("value", "")):
            del first[name]
        else:
            first[name] = theirs.pop(name)
    return {**container, "env": [*first.values(), *theirs.values()]}


def require(affinity: Manifest, expression: Manifest) -> Manifest:
    """The affinity with one more required node expression: terms are alternatives, so each one gets it."""
    node = dict(affinity.get("nodeAffinity") or {})
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or [{}]
    wider = [{**term, "matchExpressions": [*(term.get("matchExpressions") or ()), expression]} for term in terms]
    node["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": wider}
    return {**affinity, "nodeAffinity": node}


def prefer(affinity: Manifest, expression: Manifest) -> Manifest:
    """The affinity with one more node expression that the scheduler rather meets."""
    node = dict(affinity.get("nodeAffinity") or {})
    found = node.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    wish = {"weight": 1, "preference": {"matchExpressions": [expression]}}
    node["preferredDuringSchedulingIgnoredDuringExecution"] = [*found, wish]
    return {**affinity, "nodeAffinity": node}


def port(container: Mapping[str, Any], default: int = 8080) -> int:
    """Where a container serves HTTP: its port called http, its first port, its `--port` argument, or what its engine has."""
    ports = container.get("ports") or ()
    for one in sorted(ports, key=lambda one: not str(one.get("name", "")).startswith("http")):
        return int(one["containerPort"])
    parts = (*(container.get("command") or ()), *(container.get("args") or ()))
    words = [word for part in parts for word in str(part).split()]
    for before, word in pairwise(words):
        if before == "--port" and (said := quantity.whole(word)) is not None:
            return said
    known = servers.server(container)
    said_so = (quantity.whole(word[7:]) for word in words if word.startswith("--port="))
    return next((one for one in said_so if one is not None), known.port if known else default)
