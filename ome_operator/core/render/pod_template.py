"""What every engine pod gets beyond runtime and service: labels, variables, weights, RDMA (docs/architecture.md)."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from ome_operator import keys, names, quantity
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.podspec.compose import Composed
from ome_operator.core.podspec.flags import flags, override
from ome_operator.core.podspec.merge import merge
from ome_operator.core.render import meta, probes, rdma, ssh
from ome_operator.core.selection.accelerator import OWN, divided
from ome_operator.core.weights.mount import VOLUME, Mount, mount, placed
from ome_operator.engines import servers

DRAIN_MARGIN = 15
"""Seconds that a leader gets beyond its longest request, for endpoints to notice that it goes (decisions 11)."""


class Context(NamedTuple):
    """Where a pod template belongs."""

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
    """What OME calls the pods besides; a label that the user wrote counts more."""


def leader(context: Context, composed: Composed) -> Manifest:
    """Pod template of rank 0."""
    template = _template(context, composed, composed.leader, {keys.WORKER_INDEX: "0"}, _leader_env(context, composed))
    serving = port(template["spec"]["containers"][0])
    return {**template, "spec": probes.watched(template["spec"], serving)}


def worker(context: Context, composed: Composed) -> Manifest:
    """Pod template of the ranks above 0. Like the leader's, it gets the label `ome.io/group` when a group is stamped."""
    if composed.worker is None:
        raise ValueError("a group of one has no workers")
    own = composed._replace(labels=composed.worker_labels, annotations=composed.worker_annotations)
    template = _template(context, own, composed.worker, {}, _worker_env(context, composed))
    return {**template, "spec": probes.watched(template["spec"], None)}


def _template(
    context: Context, composed: Composed, pod: Manifest, marks: Mapping[str, str], group_env: list[Manifest]
) -> Manifest:
    main = dict(pod["containers"][0])
    base, *adapters = context.weights
    identity = base_env(context.service, context.namespace)
    model = [
        {"name": "MODEL_PATH", "value": base["path"]},
        {"name": "PARALLELISM_SIZE", "value": str(_parallelism(context, composed))},
    ]
    main = add_env(main, [*identity, *group_env, *model])
    if extra := context.accelerator.get("args"):
        main["args"] = override(main.get("args") or [], extra)
    if sizes := divided(context.accelerator):
        own = {*flags(extra or ()), *(context.accelerator.get(OWN) or ())}
        main = servers.with_parallelism(main, sizes, own)
    if env := context.accelerator.get("env"):
        main["env"] = merge(main["env"], [{"name": name, "value": value} for name, value in env.items()], "env")
    main = servers.with_adapters(main, {one["name"]: one["path"] for one in adapters})
    spec = {**pod, "containers": [main, *pod["containers"][1:]]}
    for one, directory in placed(context.weights, context.directories):
        volume = VOLUME if one is base else f"{VOLUME}-{names.digest(one['name'])}"
        mounted = mount(one, context.namespace, volume, directory)
        spec = _with_weights(spec, mounted)
        if mounted.affinity:
            spec["affinity"] = require(spec.get("affinity") or {}, mounted.affinity)
        if mounted.preferred:
            spec["affinity"] = prefer(spec["affinity"], mounted.preferred)
    if selector := context.accelerator.get("nodeSelector"):
        spec["nodeSelector"] = {**selector, **(pod.get("nodeSelector") or {})}
    spec = ssh.inject(rdma.inject(spec, composed.annotations), composed.annotations, context.service)
    spec.setdefault("automountServiceAccountToken", False)
    spec.setdefault("enableServiceLinks", False)
    if composed.timeout and marks:
        spec.setdefault("terminationGracePeriodSeconds", max(30, composed.timeout + DRAIN_MARGIN))
    spec["containers"] = [{"terminationMessagePolicy": "FallbackToLogsOnError", **one} for one in spec["containers"]]
    theirs = {key: value for key, value in composed.labels.items() if key not in (keys.WORKER_INDEX, keys.GROUP_INDEX)}
    labels = {**context.labels, **theirs, **meta.labels(context.service, composed.component, context.revision), **marks}
    return {"metadata": {"labels": labels, **_annotations(composed)}, "spec": spec}


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
