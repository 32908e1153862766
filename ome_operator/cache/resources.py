"""Objects of our own kinds, parsed, with what passes need of their metadata and status."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from ome_operator.api import (
    AcceleratorClass,
    BenchmarkJob,
    FineTunedWeight,
    InferenceService,
    Invalid,
    Model,
    Runtime,
    Serving,
    SglangModel,
)
from ome_operator.core.observed import from_api, managed_fields
from ome_operator.core.observed.objects import Ref

SERVICE = "InferenceService"
MODELS = ("ClusterBaseModel", "BaseModel")
RUNTIMES = ("ClusterServingRuntime", "ServingRuntime")
ACCELERATORS = ("AcceleratorClass",)
FINE_TUNED = "FineTunedWeight"
HELD = (*MODELS, FINE_TUNED)
"""What lies on nodes."""
CATALOG = (*HELD, *RUNTIMES, *ACCELERATORS)
"""What services refer to."""
BENCHMARK, JOB = "BenchmarkJob", "Job"
SHORT_MODEL, SERVING = "SglangModel", "Serving"
SHORT = (SHORT_MODEL, SERVING)
"""Kinds of group sglang.ai, of which models and services are made; watched only where their CRDs are."""


class Resource(NamedTuple):
    """An object of a kind of ours, parsed."""

    ref: Ref
    uid: str
    version: int
    generation: int
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    deleting: bool
    parsed: Any
    """The parsed object or Invalid."""
    status: Mapping[str, Any]
    status_owned: str
    """Digest of what we own of the status; see ownership."""
    writers: tuple[tuple[str, datetime], ...]
    """Foreign managers of the status."""
    owner: str = ""
    """UID of the controller owner, "" without one."""
    created: str = ""
    """When, in RFC 3339."""


_PARSE: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    SERVICE: InferenceService.parse,
    **dict.fromkeys(MODELS, Model.parse),
    FINE_TUNED: FineTunedWeight.parse,
    **dict.fromkeys(RUNTIMES, Runtime.parse),
    **dict.fromkeys(ACCELERATORS, AcceleratorClass.parse),
    BENCHMARK: BenchmarkJob.parse,
    SHORT_MODEL: SglangModel.parse,
    SERVING: Serving.parse,
}


def keep(kind: str, body: Mapping[str, Any], known: Resource | None) -> Resource:
    """The object of a body; what was known of it saves parsing it again."""
    metadata, status = body.get("metadata") or {}, body.get("status") or {}
    resource = Resource(
        ref=Ref(kind, metadata.get("namespace") or "", metadata.get("name") or ""),
        uid=from_api.uid(body),
        version=from_api.version(body),
        generation=metadata.get("generation") or 0,
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        deleting=bool(metadata.get("deletionTimestamp")),
        parsed=None,
        status=status,
        status_owned=managed_fields.owned_status(body),
        writers=from_api.status_writers(body),
        owner=(from_api.controller(metadata) or {}).get("uid") or "",
        created=metadata.get("creationTimestamp") or "",
    )
    if known is None or edited(known) != edited(resource):
        return resource._replace(parsed=_PARSE[kind](body))
    # Only the status is new, which happens often; parsing a large spec again is the dearest part.
    parsed = known.parsed
    return resource._replace(parsed=parsed if isinstance(parsed, Invalid) else replace(parsed, status=status))


def edited(one: Resource) -> tuple[Any, ...]:
    """What people change of an object, and the facts of a model with the weights that they are of: choices rest on them."""
    weights = one.status.get("weights") or {}
    return one.generation, one.labels, one.annotations, one.deleting, one.status.get("facts"), weights.get("uri")


def same(a: Resource, b: Resource) -> bool:
    """Whether two versions differ in nothing that a reconcile reads."""
    return edited(a) == edited(b) and a.status_owned == b.status_owned and _names(a) == _names(b)


def _names(one: Resource) -> set[str]:
    return {name for name, _ in one.writers}
