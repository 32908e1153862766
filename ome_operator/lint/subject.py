"""A service as the operator would run it, and what is known of its model: all that rules look at."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ome_operator import keys, quantity
from ome_operator.api import Component, InferenceService, Runtime
from ome_operator.api.learned import Facts
from ome_operator.describe.outcome import Outcome
from ome_operator.engines.flags import Versions
from ome_operator.lint.launch import Launch, launch
from ome_operator.modelinfo.weight_sizes import Weights

Manifest = Mapping[str, Any]
_PART = {keys.ENGINE: "engine_config", keys.DECODER: "decoder_config", keys.ROUTER: "router_config"}


@dataclass(frozen=True)
class ModelFacts:
    """What is known of a model; None for what nobody says."""

    name: str
    facts: Facts
    weights: Weights | None
    widths: tuple[int, ...]
    """Columns of the matrices that tensor parallelism cuts."""


@dataclass(frozen=True)
class Role:
    """A component of a service."""

    component: str
    title: str
    """prefill, decode, engine or router."""
    size: int
    """Pods of a group."""
    leader: Manifest
    """Pod of rank 0, or of the router."""
    worker: Manifest | None
    launch: Launch | None
    """What rank 0 starts; None for an unknown program."""
    others: Launch | None
    """What the other ranks start."""
    written: tuple[tuple[str, str, Component], ...]
    """(object, field, what stands there) of all that the component is made of, the highest layer first."""

    @property
    def container(self) -> Manifest:
        """The main container of rank 0."""
        return next(iter(self.leader["spec"]["containers"]), {})

    @property
    def annotations(self) -> Mapping[str, str]:
        """Of the pod of rank 0."""
        return self.leader["metadata"].get("annotations") or {}

    @property
    def gpus(self) -> int:
        """Of a group."""
        return _gpus(self.leader) + (_gpus(self.worker) * (self.size - 1) if self.worker is not None else 0)

    @property
    def per_pod(self) -> int:
        """GPUs of the pod of rank 0."""
        return _gpus(self.leader)

    @property
    def pods(self) -> tuple[Manifest, ...]:
        """The pod of rank 0, and of the others."""
        return (self.leader, *([self.worker] if self.worker is not None else []))


@dataclass(frozen=True)
class Subject:
    """What is looked at."""

    service: str
    """Namespace and name; "" for a runtime by itself."""
    runtime: str
    """Kind and name of the runtime, "" without."""
    roles: tuple[Role, ...]
    model: ModelFacts | None
    problems: tuple[str, ...]
    """Why the operator itself would not start it."""
    versions: Versions
    memory: Mapping[str, int]
    """Accelerator class -> bytes of a GPU, of those on which it may run."""
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Accelerator class -> labels of its nodes."""
    advice: str = ""
    """What the operator says in the condition Advice."""

    def role(self, title: str) -> Role | None:
        """The role of a title."""
        return next((role for role in self.roles if role.title == title), None)

    def launched(self, *engines: str) -> tuple[tuple[Role, Launch], ...]:
        """The roles that start a known program, or any of these."""
        found = ((role, role.launch) for role in self.roles)
        return tuple(
            (role, start) for role, start in found if start is not None and (not engines or start.engine in engines)
        )

    @cached_property
    def apart(self) -> tuple[tuple[Role, Launch], tuple[Role, Launch]] | None:
        """Prefill and decode, where SGLang runs both."""
        found = {role.title: (role, start) for role, start in self.launched("sglang")}
        return (found["prefill"], found["decode"]) if {"prefill", "decode"} <= found.keys() else None


def below(value: Any, *names: str) -> Manifest:
    """The map that stands below a value; an empty one where something else stands, or nothing."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def items(value: Any, name: str) -> list[Manifest]:
    """The maps in the list of this name; what else people write there is left out."""
    found = value.get(name) if isinstance(value, Mapping) else None
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def subject(
    service: InferenceService,
    runtime: Runtime | None,
    outcome: Outcome,
    model: ModelFacts | None,
    versions: Versions,
    memory: Mapping[str, int],
    labels: Mapping[str, Mapping[str, str]],
    alone: bool = False,
) -> Subject:
    """A service from what the operator would write for it. `alone`: the service was only made up to look at its runtime."""
    sizes = {role.component: (role.size, role.title) for role in outcome.roles}
    roles = []
    for component in (keys.ENGINE, keys.DECODER, keys.ROUTER):
        pods = [_template(manifest) for manifest in outcome.manifests if _is(manifest, component)]
        size, title = sizes.get(component, (1, component))
        if pods:
            worker = pods[1] if size > 1 and len(pods) > 1 else None
            roles.append(
                Role(
                    component=component,
                    title=title,
                    size=size,
                    leader=pods[0],
                    worker=worker,
                    launch=_launch(pods[0], service.annotations, versions),
                    others=_launch(worker, service.annotations, versions) if worker is not None else None,
                    written=tuple(_written(service, runtime, component, alone)),
                )
            )
    return Subject(
        service="" if alone else f"{service.namespace}/{service.name}",
        runtime=f"{runtime.kind} {runtime.name}" if runtime is not None else "",
        roles=tuple(roles),
        model=model,
        problems=outcome.problems,
        versions=versions,
        memory=memory,
        labels=labels,
        advice="" if alone else outcome.advice,
    )


def _is(manifest: Manifest, component: str) -> bool:
    """Whether it is a workload of a component: the leader's comes first."""
    workload = manifest["kind"] in ("StatefulSet", "Deployment")
    return workload and bool(manifest["metadata"]["labels"].get(keys.COMPONENT) == component)


def _template(manifest: Manifest) -> Manifest:
    found: Manifest = manifest["spec"]["template"]
    return found


def _launch(pod: Manifest, annotations: Mapping[str, str], versions: Versions) -> Launch | None:
    boxes = pod["spec"]["containers"]
    return launch(boxes[0], {**annotations, **(pod["metadata"].get("annotations") or {})}, versions) if boxes else None


def _gpus(pod: Manifest) -> int:
    return sum(quantity.gpus(box) for box in pod["spec"].get("containers") or ())


def _written(
    service: InferenceService, runtime: Runtime | None, component: str, alone: bool
) -> Iterable[tuple[str, str, Component]]:
    """Where a component is written, the service first: what stands there counts more."""
    own: Component | None = getattr(service.spec, component)
    below: Component | None = getattr(runtime.spec, _PART[component]) if runtime is not None else None
    if own is not None and not alone:
        yield f"InferenceService {service.name}", f"spec.{component}", own
    if below is not None and runtime is not None:
        yield f"{runtime.kind} {runtime.name}", f"spec.{component}Config", below
