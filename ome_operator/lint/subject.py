"""The input of the rules: a service in the form in which the operator would run it, and the known facts about its model."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from ome_operator import keys, quantity
from ome_operator.api import Component, InferenceService, Runtime
from ome_operator.capacity.model import ModelFacts
from ome_operator.core.observed.validation import RenderedComponent
from ome_operator.engines.flags import Versions
from ome_operator.lint.launch import Launch, LaunchReading, read_launch

Manifest = Mapping[str, Any]
_PART = {keys.ENGINE: "engine_config", keys.DECODER: "decoder_config", keys.ROUTER: "router_config"}


@dataclass(frozen=True)
class Role:
    """A component of a service, with its pods and the programs that they start."""

    component: str
    title: str
    """Name of the role: prefill, decode, engine or router."""
    size: int
    """Number of pods in a group."""
    leader: Manifest
    """The pod of rank 0, or the pod of the router."""
    worker: Manifest | None
    launch: Launch | None
    """How the pod of rank 0 starts its program. None for an unknown program, and for a script whose arguments cannot be
    read with certainty."""
    others: Launch | None
    """How the pods of the other ranks start their program. None if there are no other ranks, and under the conditions of
    `launch`.
    """
    partly: tuple[Launch, ...]
    """The programs that scripts start if their arguments cannot be read with certainty. Only rules about single arguments
    check these programs."""
    unread: str
    """The reason why the arguments of a program cannot be read with certainty; "" if all can be read."""
    written: tuple[tuple[str, str, Component], ...]
    """The layers that the component is merged from, the topmost first. Each layer consists of the object, the field, and
    the component as it is written in that field."""

    @property
    def container(self) -> Manifest:
        """The main container of rank 0."""
        return next(iter(self.leader["spec"]["containers"]), {})

    @property
    def annotations(self) -> Mapping[str, str]:
        """The annotations of the pod of rank 0."""
        return self.leader["metadata"].get("annotations") or {}

    @property
    def gpus(self) -> int:
        """Number of GPUs in a group."""
        return _gpus(self.leader) + (_gpus(self.worker) * (self.size - 1) if self.worker is not None else 0)

    @property
    def per_pod(self) -> int:
        """Number of GPUs that the pod of rank 0 requests."""
        return _gpus(self.leader)

    @property
    def sum_of_gpus(self) -> str:
        """How the GPUs of a group add up, such as `4 × 8`, or `8 + 3 × 4` if rank 0 differs from the other ranks."""
        theirs = _gpus(self.worker) if self.worker is not None else self.per_pod
        return f"{self.size} × {self.per_pod}" if theirs == self.per_pod else f"{self.per_pod} + {self.size - 1} × {theirs}"

    @property
    def pods(self) -> tuple[Manifest, ...]:
        """The pod of rank 0, and the pod of the other ranks if there are any."""
        return (self.leader, *([self.worker] if self.worker is not None else []))


class RefusedPart(Protocol):
    """A part of an object in a file that a cluster would refuse."""

    @property
    def rule(self) -> str:
        """ID of the rule that the part violates."""

    @property
    def object(self) -> str:
        """Kind and name of the object."""

    @property
    def field(self) -> str:
        """Path of the part in the object."""

    def causes(self, sentence: str) -> bool:
        """Return whether this part is the cause of a problem. `sentence` is the message of the problem, and states that a
        field is missing.
        """

    @property
    def says(self) -> str:
        """A statement of what is wrong."""

    @property
    def remedy(self) -> str:
        """The instruction that corrects the mistake."""


@dataclass(frozen=True)
class Subject:
    """A service that is checked, a runtime that is checked without a service, or the objects in files."""

    service: str
    """Namespace and name; empty for a runtime that is checked without a service."""
    runtime: str
    """Kind and name of the runtime; "" if the service has none."""
    roles: tuple[Role, ...]
    model: ModelFacts | None
    """The known facts about the model; None if nothing is known."""
    problems: tuple[str, ...]
    """The reasons why the operator itself would not start the service."""
    versions: Versions
    memory: Mapping[str, int]
    """Maps the name of each accelerator class on which the service may run to the memory of one GPU in bytes."""
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Maps the name of each accelerator class to the labels of the nodes of this class."""
    advice: str = ""
    """The operator's message in the condition Advice of the service."""
    demand: str = ""
    """Why the spec does not allow the operator to scale the service with its demand; "" if it does, or if no component has
    the autoscaler class Demand."""
    keda_absent: bool = False
    """Whether the cluster of the service is known not to serve KEDA's ScaledObjects."""
    model_name: str = ""
    """Kind and name of the model; "" if the service has none."""
    refused: tuple["RefusedPart", ...] = ()
    """The parts of the objects in the checked files that a cluster would refuse."""
    dangling_references: tuple[tuple[str, str], ...] = ()
    """The references of the object to other objects that are neither in the checked files nor in the catalog. Each reference
    is a pair: path of the field, and sentence that states what to do."""
    source: str = ""
    """Why nothing downloads the files of a model or of fine-tuned weights; "" if agents download the files, a claim
    contains them, or users copy them to the nodes."""
    elsewhere: str = ""
    """Why no runtime in the files or in the catalog fits a service that names no runtime. A runtime on the cluster of the
    service may fit nevertheless. "" if a runtime fits, or if the runtimes of the cluster are known."""
    ignored: frozenset[str] = frozenset()
    """IDs of the rules that are not applied to this service."""
    variants: tuple["Subject", ...] = ()
    """For a runtime that is checked without a service and fits several models: the subject of the runtime with each of the
    models."""

    @property
    def launches(self) -> tuple[Launch, ...]:
        """All programs of all roles."""
        return tuple(start for role in self.roles for start in (role.launch, role.others, *role.partly) if start is not None)

    def role(self, title: str) -> Role | None:
        """Return the role with this title; None if there is none. Roles have the titles prefill, decode, engine and
        router.
        """
        return next((role for role in self.roles if role.title == title), None)

    def launched(self, *engines: str) -> tuple[tuple[Role, Launch], ...]:
        """Return the roles that start a known program, each with its launch. With `engines`, return only roles that start
        one of these programs.
        """
        found = ((role, role.launch) for role in self.roles)
        return tuple(
            (role, start) for role, start in found if start is not None and (not engines or start.engine in engines)
        )

    @cached_property
    def apart(self) -> tuple[tuple[Role, Launch], tuple[Role, Launch]] | None:
        """The prefill and decode roles, each with its launch, if SGLang runs both; otherwise None."""
        found = {role.title: (role, start) for role, start in self.launched("sglang")}
        return (found["prefill"], found["decode"]) if {"prefill", "decode"} <= found.keys() else None


def map_at(value: Any, *names: str) -> Manifest:
    """Return the map at the path `names` below a value. Return an empty map if there is no map at this path."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def items(value: Any, name: str) -> list[Manifest]:
    """Return the maps in the list at the key `name`. Entries that are not maps are left out."""
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
    """Return the subject for a service, built from the pods that the operator would create for it. If `alone` is true,
    the service was created only to check its runtime.

    The caller adds what the operator itself reports of the service (`problems`, `advice`).
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
        ignored=ignored_rules(service.annotations),
    )


def ignored_rules(annotations: Mapping[str, str]) -> frozenset[str]:
    """Return the IDs of the rules that the annotation of a service disables."""
    return frozenset(re.split(r"[\s,]+", annotations.get(keys.LINT_IGNORE, ""))) - {""}


def _role(
    part: RenderedComponent, service: InferenceService, runtime: Runtime | None, versions: Versions, alone: bool
) -> Role:
    leader, worker = part.pods[0], part.pods[1] if part.size > 1 and len(part.pods) > 1 else None
    first, rest = (_reading(pod, service.annotations, versions) for pod in (leader, worker))
    return Role(
        component=part.component,
        title=part.title,
        size=part.size,
        leader=leader,
        worker=worker,
        launch=first.launch,
        others=rest.launch,
        partly=(*first.partly, *(one for one in rest.partly if one not in first.partly)),
        unread=first.why or rest.why,
        written=tuple(_written(service, runtime, part.component, alone)),
    )


def _reading(pod: Manifest | None, annotations: Mapping[str, str], versions: Versions) -> LaunchReading:
    boxes = pod["spec"]["containers"] if pod is not None else ()
    if pod is None or not boxes:
        return LaunchReading()
    return read_launch(boxes[0], {**annotations, **(pod["metadata"].get("annotations") or {})}, versions)


def _gpus(pod: Manifest) -> int:
    """Return the number of GPUs that a pod requests. GPUs of several vendors are not added up, because no engine uses them
    together. The result is the number of the vendor with the most GPUs.
    """
    found = Counter[str]()
    for box in pod["spec"].get("containers") or ():
        asked = quantity.resource_maximums(box)
        found.update({name: int(quantity.parse(amount)) for name, amount in asked.items() if name.endswith("/gpu")})
    return max(found.values(), default=0)


def _written(
    service: InferenceService, runtime: Runtime | None, component: str, alone: bool
) -> Iterable[tuple[str, str, Component]]:
    """Yield the layers in which a component is written, the topmost first. The service is the topmost layer, because it
    overrides the runtime. If `alone` is true, the service was created only to check its runtime, and is left out.
    """
    own: Component | None = getattr(service.spec, component)
    below: Component | None = getattr(runtime.spec, _PART[component]) if runtime is not None else None
    if own is not None and not alone:
        yield f"InferenceService {service.name}", f"spec.{component}", own
    if below is not None and runtime is not None:
        yield f"{runtime.kind} {runtime.name}", f"spec.{component}Config", below
