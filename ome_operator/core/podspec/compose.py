"""Compose the pods of a component from a revision's inputs: the service is merged over the runtime (docs/architecture.md,
"Merge").

The layers, lowest first, are: the runtime's top-level pod spec, its component, its leader or worker part, the service's
component, and the service's leader or worker part. The runner, labels and annotations are merged in the same order.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from ome_operator import keys
from ome_operator.api import Component, PodPart
from ome_operator.api.invalid import combine_errors
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.podspec.canonical import canonical_pod
from ome_operator.core.podspec.env_order import in_order
from ome_operator.core.podspec.merge import into_container, merge_layers
from ome_operator.core.podspec.validate import first_mistake
from ome_operator.core.problem import ProblemError
from ome_operator.core.reasons import CONDITION, Reason

ROUTER_SAMPLE = (
    "write a router for the engine into spec.routerConfig of the runtime; for SGLang, copy the router of "
    "config/runtimes/srt/kimi-k2-pd-rt.yaml"
)
"""Remedy that a message about a router without a container contains. It names a file of the catalog that contains a router
for prefill and decode engines of SGLang. A router of SGLang cannot send requests to other engines."""


class ComposedPods(NamedTuple):
    """The pods of a component as runtime and service specify them, before `core/render` extends them."""

    component: str
    size: int
    """Pods per group, at least 1."""
    leader: Manifest
    """Pod spec of rank 0; its first container is the runner."""
    worker: Manifest | None
    """Pod spec of the other ranks; None for groups of one pod."""
    labels: dict[str, str]
    annotations: dict[str, str]
    worker_labels: dict[str, str]
    worker_annotations: dict[str, str]
    """`worker_labels` and `worker_annotations` are the labels and annotations of the other ranks. The runtime's deprecated
    `workers` block may add entries to both.
    """
    config: dict[str, str]
    """Environment variables that `config` of a router adds to its container."""
    timeout: int | None
    """Maximum duration of a request in seconds (`timeoutSeconds`)."""
    dropped: tuple[str, ...]
    """Sentences, one for each duplicate list entry that was removed."""


def compose(component: str, runtime: Mapping[str, Any], written: Mapping[str, Any] | None) -> ComposedPods:
    """Compose the pods of `component` from a runtime's spec and from `written`, the component in the service.

    `runtime` contains the parts `pod`, `labels`, `annotations`, `workers` and `<component>Config` of a runtime's spec.
    Raises ProblemError if there is no container to run, or if a layer is not a valid pod spec.
    """
    below = _read(runtime.get(f"{component}Config"), component, f"the runtime's spec.{component}Config")
    above = _read(written, component, f"spec.{component}")
    shared = {} if component == keys.ROUTER else dict(runtime.get("pod") or {})
    workers = _workers(runtime, below, above, component)
    old_workers = (runtime.get("workers") or {}) if component == keys.ENGINE else {}
    size = 1 + workers[0]
    layers = _layers(component, shared, workers[1], below, above)
    _check(component, layers)
    leader = _pod(component, shared, (below, below.leader), (above, above.leader))
    worker = None
    if size > 1:
        worker = _pod(component, merge_layers(shared, workers[1]), (below, below.worker), (above, above.worker))
    pods = [canonical_pod(in_order(pod)) for pod in (leader, worker) if pod is not None]
    return ComposedPods(
        component=component,
        size=size,
        leader=pods[0][0],
        worker=pods[1][0] if size > 1 else None,
        labels=merge_layers(runtime.get("labels"), below.labels, above.labels),
        annotations=merge_layers(runtime.get("annotations"), below.annotations, above.annotations),
        worker_labels=merge_layers(runtime.get("labels"), old_workers.get("labels"), below.labels, above.labels),
        worker_annotations=merge_layers(
            runtime.get("annotations"), old_workers.get("annotations"), below.annotations, above.annotations
        ),
        config=merge_layers(below.config, above.config),
        timeout=above.timeout_seconds if above.timeout_seconds is not None else below.timeout_seconds,
        dropped=_dropped(layers, [text for _, sentences in pods for text in sentences]),
    )


def _read(stored: Mapping[str, Any] | None, component: str, location: str) -> Component:
    """Parse a stored component. Raises ProblemError if the running code rejects data that an older version stored.
    `location` names the component in messages.
    """
    try:
        return Component.model_validate(stored or {})
    except ValidationError as error:
        message = combine_errors(error.errors(include_url=False), location).why
        raise ProblemError(CONDITION[component], Reason.INVALID_POD, message) from error


def _workers(runtime: Mapping[str, Any], below: Component, above: Component, component: str) -> tuple[int, Manifest]:
    """Return the number of workers per group, and the pod spec in the runtime's deprecated top-level `workers` block. The
    block applies to engines.
    """
    old = dict(runtime.get("workers") or {}) if component == keys.ENGINE else {}
    sizes = [part.size for part in (above.worker, below.worker) if part is not None and part.size is not None]
    if not sizes and old.get("size") is not None:
        sizes = [int(old["size"])]
    named = above.worker is not None or below.worker is not None or bool(old)
    pod = {key: value for key, value in old.items() if key not in ("size", "labels", "annotations")}
    return (sizes[0] if sizes else 1 if named else 0), pod


_Layers = list[tuple[Mapping[str, Any] | None, str]]


def _layers(component: str, shared: Manifest, workers: Manifest, below: Component, above: Component) -> _Layers:
    """Return all layers to merge, each with its location for messages."""
    layers: _Layers = [(shared, "the runtime's spec"), (workers, "the runtime's spec.workers")]
    for component_layer, where in ((below, f"the runtime's spec.{component}Config"), (above, f"spec.{component}")):
        layers += [(component_layer.pod, where), (component_layer.runner, f"{where}.runner")]
        for part, name in ((component_layer.leader, "leader"), (component_layer.worker, "worker")):
            if part is not None:
                layers += [(part.pod, f"{where}.{name}"), (part.runner, f"{where}.{name}.runner")]
    return layers


def _dropped(layers: _Layers, merged: list[str]) -> tuple[str, ...]:
    """Return one sentence for each duplicate within a layer, which the merge would hide, and one for each duplicate in
    the merged pods.
    """
    own = {f"{where}: {text}": text for layer, where in layers if layer for text in canonical_pod(dict(layer))[1]}
    return tuple(dict.fromkeys([*own, *(text for text in merged if text not in own.values())]))


def _check(component: str, layers: _Layers) -> None:
    """Raise ProblemError for the first layer that does not have the structure of a pod spec or container."""
    for layer, where in layers:
        if message := first_mistake(layer, where):
            raise ProblemError(CONDITION[component], Reason.INVALID_POD, message)


def _pod(component: str, shared: Mapping[str, Any], *layers: tuple[Component, PodPart | None]) -> Manifest:
    pods: list[Mapping[str, Any] | None] = [shared]
    runners: list[Mapping[str, Any] | None] = []
    for component_layer, part in layers:
        pods += [component_layer.pod, part.pod if part else None]
        runners += [component_layer.runner, part.runner if part else None]
    pod, runner = merge_layers(*pods), merge_layers(*runners)
    if not runner and not pod.get("containers"):
        remedy = f"{ROUTER_SAMPLE}, or remove spec.router" if component == keys.ROUTER else "add a runner to one of them"
        raise ProblemError(
            CONDITION[component],
            Reason.NO_CONTAINER,
            f"there is nothing to run, because neither the runtime's spec.{component}Config nor the service's "
            f"spec.{component} has a runner or containers: {remedy}",
        )
    containers = [container["name"] for container in pod.get("containers") or ()]
    # A runner without a name overrides the existing main container instead of adding another container.
    main = keys.RUNNER if keys.RUNNER in containers or not containers else containers[0]
    return into_container(pod, runner, main)
