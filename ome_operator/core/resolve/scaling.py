"""How many groups a component should have and how it may be disturbed: what never belongs to a revision."""

from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.api import Component, InferenceService, Runtime
from ome_operator.util.memoize import memoize_by_identity

FIELDS = (
    "min_replicas", "max_replicas", "min_available", "max_unavailable", "scale_metric", "scale_target", "autoscaler",
)  # fmt: skip

SCALERS = ("hpa", "keda", "external", "none")


class ReplicaPolicy(NamedTuple):
    """Counts of a component, the service's value above the runtime's."""

    low: int
    """minReplicas; 1 when unset."""
    high: int
    """maxReplicas; minReplicas when unset: an autoscaler is asked for, never assumed (docs/migrate.md)."""
    min_available: int | str | None
    max_unavailable: int | str | None
    scale_metric: str
    """"" when unset."""
    scale_target: int
    """0 when unset."""
    hpa: dict[str, Any]
    """`autoscaler.hpa`: metrics and behavior."""
    scaler: str
    """hpa, keda, external or none: who moves the replicas between low and high; "" for people alone (docs/scaling.md). Any
    other word scales nothing."""

    @property
    def scaled(self) -> bool:
        """Whether somebody else than the spec decides the number of groups."""
        return self.scaler in ("keda", "external") or (self.low < self.high and self.scaler in ("hpa", ""))

    @property
    def autoscaled(self) -> bool:
        """Whether a HorizontalPodAutoscaler is made: requests are no metric of pods that it could read by itself."""
        return self.low < self.high and self.scaler == "hpa" and (bool(self.hpa.get("metrics")) or self.readable)

    @property
    def readable(self) -> bool:
        """Whether `scaleMetric` is a resource of pods."""
        return self.scale_metric in ("", "cpu", "memory")


def policy(service: InferenceService, runtime: Runtime | None, component: str) -> ReplicaPolicy:
    """The policy of a component; an unset field of the service falls back to the runtime's component."""
    above: Component | None = getattr(service.spec, component)
    below: Component | None = getattr(runtime.spec, f"{component}_config") if runtime else None
    return _policy(above, below, service.annotations.get(keys.AUTOSCALER_CLASS) or "")


@memoize_by_identity(2048)
def _policy(above: Component | None, below: Component | None, annotated: str) -> ReplicaPolicy:
    value: dict[str, Any] = {}
    for field in FIELDS:
        mine = getattr(above, field) if above else None
        value[field] = mine if mine is not None else getattr(below, field) if below else None
    if above and (above.min_available is not None or above.max_unavailable is not None):
        value["min_available"], value["max_unavailable"] = above.min_available, above.max_unavailable
    low = 1 if value["min_replicas"] is None else value["min_replicas"]
    high = low if value["max_replicas"] is None else max(low, value["max_replicas"])
    scaler = value["autoscaler"]
    hpa = dict((scaler.hpa if scaler else None) or {})
    # Without a class a metric says that an autoscaler is wanted. Room between the two counts alone does not.
    said = (scaler.class_ if scaler else None) or annotated or ("hpa" if value["scale_metric"] else "")
    return ReplicaPolicy(
        low=low,
        high=high,
        min_available=value["min_available"],
        max_unavailable=value["max_unavailable"],
        scale_metric=value["scale_metric"] or "",
        scale_target=value["scale_target"] or 0,
        hpa=hpa,
        scaler=said.lower(),
    )
