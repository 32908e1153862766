"""A service as the operator would run it, and what is known of its model: all that rules look at."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ome_operator import keys, quantity
from ome_operator.api import Component, InferenceService, Runtime
from ome_operator.capacity.model import ModelFacts
from ome_operator.core.observed.validation import RenderedComponent
from ome_operator.engines.flags import Versions
from ome_operator.lint.launch import Launch, launch

Manifest = Mapping[str, Any]
_PART = {keys.ENGINE: "engine_config", keys.DECODER: "decoder_config", keys.ROUTER: "router_config"}


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
    ignored: frozenset[str] = frozenset()
    """Ids of the rules that say nothing here."""

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
    parts: Iterable[RenderedComponent],
    model: ModelFacts | None,
    versions: Versions,
    memory: Mapping[str, int],
    labels: Mapping[str, Mapping[str, str]],
    alone: bool = False,
) -> Subject:
    """A service from the pods that the operator would make for it. `alone`: it was made up to look at its runtime.

    What the operator itself says of it (`problems`, `advice`) is for the caller to add.
    """
    return Subject(
        service="" if alone else f"{service.namespace}/{service.name}",
        runtime=f"{runtime.kind} {runtime.name}" if runtime is not None else "",
        roles=tuple(_role(part, service, runtime, versions, alone) for part in parts),
        model=model,
        problems=(),
        versions=versions,
        memory=memory,
        labels=labels,
        ignored=ignored(service.annotations),
    )


def ignored(annotations: Mapping[str, str]) -> frozenset[str]:
    """Ids of the rules that say nothing about a service, by its annotation."""
    return frozenset(re.split(r"[\s,]+", annotations.get(keys.LINT_IGNORE, ""))) - {""}


def _role(
    part: RenderedComponent, service: InferenceService, runtime: Runtime | None, versions: Versions, alone: bool
) -> Role:
    leader, worker = part.pods[0], part.pods[1] if part.size > 1 and len(part.pods) > 1 else None
    return Role(
        component=part.component,
        title=part.title,
        size=part.size,
        leader=leader,
        worker=worker,
        launch=_launch(leader, service.annotations, versions),
        others=_launch(worker, service.annotations, versions) if worker is not None else None,
        written=tuple(_written(service, runtime, part.component, alone)),
    )


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
