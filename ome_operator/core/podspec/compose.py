"""Compose the pods of a component from a revision's inputs: runtime below, service above (docs/architecture.md, "Merge").

Order of the layers, lowest first: the runtime's top-level pod spec, its component, its leader or worker part, the service's
component, the service's leader or worker part. The runner, labels and annotations follow the same order.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from ome_operator import keys
from ome_operator.api import Component, PodPart
from ome_operator.api.invalid import invalid
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.podspec.canonical import tidy
from ome_operator.core.podspec.merge import into_container, over
from ome_operator.core.podspec.validate import wrong
from ome_operator.core.problem import ProblemError
from ome_operator.core.reasons import CONDITION, Reason


class Composed(NamedTuple):
    """A component's pods, before the operator adds what every pod gets."""

    component: str
    size: int
    """Pods in a group, at least 1."""
    leader: Manifest
    """Pod spec of rank 0; its first container is the runner."""
    worker: Manifest | None
    """Pod spec of the other ranks; None for groups of one."""
    labels: dict[str, str]
    annotations: dict[str, str]
    worker_labels: dict[str, str]
    worker_annotations: dict[str, str]
    """Labels and annotations of the other ranks: the runtime's old `workers` block may have more."""
    config: dict[str, str]
    """Variables of a router."""
    timeout: int | None
    """Longest request in seconds (`timeoutSeconds`)."""
    dropped: tuple[str, ...]
    """Duplicates that were dropped, one sentence each."""


def compose(component: str, runtime: Mapping[str, Any], written: Mapping[str, Any] | None) -> Composed:
    """The component `component` of a service that wrote `written`, on a runtime's spec.

    `runtime` has the parts `pod`, `labels`, `annotations`, `workers` and `<component>Config` of a runtime's spec.
    Raises ProblemError when no container is left to run, or when what stands there is no pod spec.
    """
    below = _read(runtime.get(f"{component}Config"), component, f"the runtime's spec.{component}Config")
    above = _read(written, component, f"spec.{component}")
    shared = {} if component == keys.ROUTER else dict(runtime.get("pod") or {})
    workers = _workers(runtime, below, above, component)
    of_workers = (runtime.get("workers") or {}) if component == keys.ENGINE else {}
    size = 1 + workers[0]
    layers = _layers(component, shared, workers[1], below, above)
    _check(component, layers)
    leader = _pod(component, shared, (below, below.leader), (above, above.leader))
    worker = None
    if size > 1:
        worker = _pod(component, over(shared, workers[1]), (below, below.worker), (above, above.worker))
    pods = [tidy(pod) for pod in (leader, worker) if pod is not None]
    return Composed(
        component=component,
        size=size,
        leader=pods[0][0],
        worker=pods[1][0] if size > 1 else None,
        labels=over(runtime.get("labels"), below.labels, above.labels),
        annotations=over(runtime.get("annotations"), below.annotations, above.annotations),
        worker_labels=over(runtime.get("labels"), of_workers.get("labels"), below.labels, above.labels),
        worker_annotations=over(
            runtime.get("annotations"), of_workers.get("annotations"), below.annotations, above.annotations
        ),
        config=over(below.config, above.config),
        timeout=above.timeout_seconds if above.timeout_seconds is not None else below.timeout_seconds,
        dropped=_dropped(layers, [text for _, sentences in pods for text in sentences]),
    )


def _read(stored: Mapping[str, Any] | None, component: str, where: str) -> Component:
    """A component as the running code understands it; an older one may have stored what this one refuses."""
    try:
        return Component.model_validate(stored or {})
    except ValidationError as error:
        said = invalid(error.errors(include_url=False), where).why
        raise ProblemError(CONDITION[component], Reason.INVALID_POD, said) from error


def _workers(runtime: Mapping[str, Any], below: Component, above: Component, component: str) -> tuple[int, Manifest]:
    """Workers per group, and the pod spec of the runtime's old top-level `workers` block (which means the engine's)."""
    old = dict(runtime.get("workers") or {}) if component == keys.ENGINE else {}
    sizes = [part.size for part in (above.worker, below.worker) if part is not None and part.size is not None]
    if not sizes and old.get("size") is not None:
        sizes = [int(old["size"])]
    named = above.worker is not None or below.worker is not None or bool(old)
    pod = {key: value for key, value in old.items() if key not in ("size", "labels", "annotations")}
    return (sizes[0] if sizes else 1 if named else 0), pod


_Layers = list[tuple[Mapping[str, Any] | None, str]]


def _layers(component: str, shared: Manifest, workers: Manifest, below: Component, above: Component) -> _Layers:
    """Everything that is merged, with where it stands."""
    layers: _Layers = [(shared, "the runtime's spec"), (workers, "the runtime's spec.workers")]
    for whole, where in ((below, f"the runtime's spec.{component}Config"), (above, f"spec.{component}")):
        layers += [(whole.pod, where), (whole.runner, f"{where}.runner")]
        for part, name in ((whole.leader, "leader"), (whole.worker, "worker")):
            if part is not None:
                layers += [(part.pod, f"{where}.{name}"), (part.runner, f"{where}.{name}.runner")]
    return layers


def _dropped(layers: _Layers, merged: list[str]) -> tuple[str, ...]:
    """One sentence for each duplicate: of a layer, where a merge hides it, and of what they are together."""
    own = {f"{where}: {text}": text for layer, where in layers if layer for text in tidy(dict(layer))[1]}
    return tuple(dict.fromkeys([*own, *(text for text in merged if text not in own.values())]))


def _check(component: str, layers: _Layers) -> None:
    """Raise ProblemError for the first layer that has not the shape of a pod spec, or of a container."""
    for layer, where in layers:
        if said := wrong(layer, where):
            raise ProblemError(CONDITION[component], Reason.INVALID_POD, said)


def _pod(component: str, shared: Mapping[str, Any], *layers: tuple[Component, PodPart | None]) -> Manifest:
    pods: list[Mapping[str, Any] | None] = [shared]
    runners: list[Mapping[str, Any] | None] = []
    for whole, part in layers:
        pods += [whole.pod, part.pod if part else None]
        runners += [whole.runner, part.runner if part else None]
    pod, runner = over(*pods), over(*runners)
    if not runner and not pod.get("containers"):
        raise ProblemError(
            CONDITION[component],
            Reason.NO_CONTAINER,
            f"nothing to run: neither the runtime's spec.{component}Config nor the service's spec.{component} has a runner "
            "or containers",
        )
    containers = [one["name"] for one in pod.get("containers") or ()]
    # A runner without a name means the main container that is there, not another one beside it.
    main = keys.RUNNER if keys.RUNNER in containers or not containers else containers[0]
    return into_container(pod, runner, main)
