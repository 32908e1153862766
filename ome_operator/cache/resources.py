"""Parsed objects of the operator's own kinds, with the metadata and status that reconciliations need."""

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
from ome_operator.util import large_objects

SERVICE = "InferenceService"
MODELS = ("ClusterBaseModel", "BaseModel")
RUNTIMES = ("ClusterServingRuntime", "ServingRuntime")
ACCELERATORS = ("AcceleratorClass",)
FINE_TUNED = "FineTunedWeight"
HELD = (*MODELS, FINE_TUNED)
"""Kinds whose weights are stored on nodes."""
CATALOG = (*HELD, *RUNTIMES, *ACCELERATORS)
"""Kinds that services refer to."""
BENCHMARK, JOB = "BenchmarkJob", "Job"
SHORT_MODEL, SERVING = "SglangModel", "Serving"
SHORT = (SHORT_MODEL, SERVING)
"""Kinds of group sglang.ai, from which the operator makes models and services. They are watched only if their CRDs exist."""


class Resource(NamedTuple):
    """A parsed object of one of the operator's kinds."""

    ref: Ref
    uid: str
    version: int
    generation: int
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    deleting: bool
    parsed: Any
    """The parsed object, or `Invalid` if the object cannot be used."""
    status: Mapping[str, Any]
    status_owned: str
    """Digest of the status fields that the operator owns; see core/observed/managed_fields.py."""
    writers: tuple[tuple[str, datetime], ...]
    """Maps field managers other than the operator that have written the status to the time of their last write."""
    owner: str = ""
    """UID of the controller owner; "" if the object has none."""
    created: str = ""
    """Creation time in RFC 3339."""


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


def parse_or_keep(kind: str, body: Mapping[str, Any], known: Resource | None) -> Resource:
    """Return the resource for an object's JSON. If the spec is the same as in `known`, the stored resource, it is not parsed
    again. The resource of a namespaced object that is too large has no spec, and its `parsed` is Invalid.
    """
    resource = _unparsed(kind, body)
    if known is not None and editable_parts(known) == editable_parts(resource):
        # Only the status has changed, which happens often; parsing a large spec again would be the most expensive part.
        parsed = known.parsed
        return resource._replace(parsed=parsed if isinstance(parsed, Invalid) else replace(parsed, status=resource.status))
    small = large_objects.reduce(body)
    if why := large_objects.refusal(small):
        return _unparsed(kind, small)._replace(parsed=Invalid(why))
    return resource._replace(parsed=_PARSE[kind](body))


def _unparsed(kind: str, body: Mapping[str, Any]) -> Resource:
    metadata, status = body.get("metadata") or {}, body.get("status") or {}
    return Resource(
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


def editable_parts(resource: Resource) -> tuple[Any, ...]:
    """Return the parts of an object that people can edit, and the status fields of a model on which selection depends."""
    weights = resource.status.get("weights") or {}
    facts = resource.status.get("facts")
    return resource.generation, resource.labels, resource.annotations, resource.deleting, facts, weights.get("uri")


def is_same(a: Resource, b: Resource) -> bool:
    """Return whether two versions of an object are equal in everything that a reconciliation reads."""
    return editable_parts(a) == editable_parts(b) and a.status_owned == b.status_owned and _names(a) == _names(b)


def _names(resource: Resource) -> set[str]:
    return {name for name, _ in resource.writers}
