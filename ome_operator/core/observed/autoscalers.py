"""Find HorizontalPodAutoscalers of other clients that scale an object which the class Demand or the operator itself already
scales.

ScaledObjects are not read, because KEDA creates a HorizontalPodAutoscaler for each of them, and this
HorizontalPodAutoscaler is found.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ome_operator.core.observed.exclusions import OBJECT_NAME


class ForeignAutoscaler(NamedTuple):
    """A HorizontalPodAutoscaler of another client, in the namespace of a service."""

    name: str
    target: tuple[str, str]
    """Kind and name of the object that the autoscaler scales."""
    scaled_object: str = ""
    """Name of the ScaledObject for which KEDA created the autoscaler; "" if another client created it."""

    @property
    def title(self) -> str:
        """Kind and name of the object that a person has created: the ScaledObject if KEDA created the autoscaler, otherwise
        the autoscaler itself.
        """
        return f"ScaledObject {self.scaled_object}" if self.scaled_object else f"HorizontalPodAutoscaler {self.name}"

    def deletion(self, namespace: str) -> str:
        """Return the `kubectl` command that deletes the object that `title` names."""
        what = f"scaledobject {self.scaled_object}" if self.scaled_object else f"hpa {self.name}"
        return f"`kubectl delete {what} -n {namespace}`"


def autoscaler(body: Mapping[str, Any]) -> ForeignAutoscaler:
    """Return the HorizontalPodAutoscaler whose JSON is `body`."""
    metadata, target = body.get("metadata") or {}, (body.get("spec") or {}).get("scaleTargetRef") or {}
    owners = (_scaled_object(one) for one in metadata.get("ownerReferences") or ())
    return ForeignAutoscaler(
        metadata.get("name") or "",
        (target.get("kind") or "", target.get("name") or ""),
        next((owner for owner in owners if owner), ""),
    )


def _scaled_object(owner: Mapping[str, Any]) -> str:
    """Return the name of the ScaledObject to which an owner reference refers; "" if KEDA did not write the reference.

    The API server checks the name of an autoscaler, but accepts any text as the name of an owner. This name becomes part of
    a command, so it has to be the valid name of an object.
    """
    name, group = owner.get("name") or "", (owner.get("apiVersion") or "").partition("/")[0]
    known = group == "keda.sh" and owner.get("kind") == "ScaledObject" and owner.get("controller") is True
    return name if known and OBJECT_NAME.fullmatch(name) else ""


def writer_of(autoscalers: Iterable[ForeignAutoscaler], role_scale: str) -> ForeignAutoscaler | None:
    """Return the autoscaler that scales the RoleScale with the name `role_scale`; None if no autoscaler in `autoscalers`
    does.
    """
    return next((one for one in autoscalers if one.target == ("RoleScale", role_scale)), None)


def second_autoscalers(
    autoscalers: Iterable[ForeignAutoscaler],
    demanded: Mapping[str, str],
    manifests: Iterable[Mapping[str, Any]],
    service: str,
    namespace: str,
) -> Iterator[str]:
    """Yield a sentence for each autoscaler of another client that scales a role of the class Demand, or a workload whose
    number of pods the operator sets.

    `demanded` contains the components whose number of groups the class Demand sets, by the names of their RoleScales.
    `manifests` are the objects of the service.
    """
    found = tuple(autoscalers)
    workloads = {(one["kind"], one["metadata"]["name"]) for one in manifests} if found else set()
    for one in found:
        kind, target = one.target
        if kind == "RoleScale" and (component := demanded.get(target)):
            yield (
                f"{one.title} and the class Demand both scale {component}: a number that {one.title} writes into RoleScale "
                f"{target} replaces the number of the class Demand. To keep the class Demand, run {one.deletion(namespace)} "
                f"and then `ome scale {service} -n {namespace} --resume`. To keep {one.title}, write External into "
                f"spec.{component}.autoscaler.class"
            )
        elif kind in ("StatefulSet", "Deployment") and one.target in workloads:
            yield (
                f"{one.title} scales {kind} {target}, whose number of pods the operator sets, too, so the two overwrite "
                f"each other's number: run {one.deletion(namespace)}, and scale the service with its RoleScales "
                "(docs/scaling.md)"
            )
