"""Slim facts of nodes from watched bodies: pure and total, as those of `from_api`."""

from collections.abc import Iterable
from sys import intern

from ome_operator import quantity
from ome_operator.core.observed import from_api, managed_fields
from ome_operator.core.observed.from_api import Body
from ome_operator.core.observed.objects import Node, Taint
from ome_operator.core.observed.shared import Labels, named, shared


def node(body: Body) -> Node:
    """A node, ready when the scheduler may put pods on it."""
    metadata, spec, status = body.get("metadata") or {}, body.get("spec") or {}, body.get("status") or {}
    conditions = {one.get("type"): one.get("status") for one in status.get("conditions") or ()}
    allocatable = status.get("allocatable") or {}
    return Node(
        name=metadata.get("name") or "",
        version=from_api.version(body),
        labels=Labels(metadata.get("labels") or {}),
        ready=conditions.get("Ready") == "True" and not spec.get("unschedulable"),
        alive=conditions.get("Ready") == "True",
        gpus=sum(quantity.units(name, value) for name, value in allocatable.items() if name.endswith("/gpu")),
        ours=_applied_labels(body),
        taints=shared(tuple(sorted(_taints(spec)))),
        room=shared(tuple(sorted((intern(name), quantity.units(name, value)) for name, value in allocatable.items()))),
    )


def _taints(spec: Body) -> Iterable[Taint]:
    for taint in spec.get("taints") or ():
        if taint.get("effect") in ("NoSchedule", "NoExecute"):
            yield Taint(taint.get("key") or "", taint.get("value") or "", taint["effect"])


def _applied_labels(body: Body) -> frozenset[str]:
    fields = managed_fields.applied_fields(body) or {}
    return named(tuple((fields.get("f:metadata") or {}).get("f:labels") or ()))
