"""Replica counts, autoscaling and disruption limits of a component, which are never part of a revision."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.api import Component, InferenceService, KedaConfig, Runtime
from ome_operator.core.resolve.keda import NO_KEDA, KedaSettings, keda_settings
from ome_operator.util.memoize import memoize_by_identity

FIELDS = (
    "min_replicas", "max_replicas", "min_available", "max_unavailable", "scale_metric", "scale_target", "autoscaler",
    "node_scale_down", "keda_config",
)  # fmt: skip

SCALERS = ("hpa", "keda", "external", "none")
_WITHOUT_KEDA = (
    "has no effect without the autoscaler class KEDA and a maxReplicas above minReplicas: write both, or remove kedaConfig"
)


class ReplicaPolicy(NamedTuple):
    """Replica counts and limits of a component. Values of the service take precedence over values of the runtime."""

    low: int
    """Minimum number of replicas (minReplicas); 1 if unset."""
    high: int
    """Maximum number of replicas (maxReplicas); minReplicas if unset, because autoscaling has to be requested explicitly
    (docs/migrate.md)."""
    min_available: int | str | None
    max_unavailable: int | str | None
    scale_metric: str
    """Name of the metric for autoscaling; "" if unset."""
    scale_target: int
    """Target value of the metric for autoscaling; 0 if unset."""
    hpa: dict[str, Any]
    """Metrics and behavior of the HorizontalPodAutoscaler (`autoscaler.hpa`)."""
    scaler: str
    """Name of the autoscaler that changes the number of replicas between `low` and `high`: hpa, keda, external or none; ""
    for manual scaling only (docs/scaling.md). With any other text, nothing scales the component."""
    demand: bool = False
    """Whether the operator decides the number (autoscaler.class Demand). The annotation cannot set this class."""
    node_scale_down: str = ""
    """Allow or Forbid: whether autoscalers of nodes may remove the nodes of the component's pods. "" if unset."""
    keda: KedaSettings = NO_KEDA
    """Settings of the ScaledObject, if `scaler` is keda."""
    waits: bool = False
    """Whether no autoscaler is created before the next edit of the service (`new_scaling`)."""
    unbounded: bool = False
    """Whether the class is Demand and maxReplicas is not set. Nothing scales the component then. It keeps the last number
    that the class has decided, if any, and has at least `low` replicas (`intent.py`)."""

    @property
    def is_scaled(self) -> bool:
        """Whether the number of groups may be changed by something other than the spec."""
        return self.scaler in ("keda", "external") or (self.low < self.high and (self.demand or self.scaler in ("hpa", "")))

    @property
    def autoscaled(self) -> bool:
        """Whether a HorizontalPodAutoscaler is created. It is not created for a metric that a HorizontalPodAutoscaler cannot
        read, such as the rate of requests.
        """
        return not self.waits and self.low < self.high and self.scaler == "hpa" and self.has_metric

    @property
    def scaled_by_keda(self) -> bool:
        """Whether a ScaledObject is created, if the operator creates ScaledObjects."""
        return not self.waits and self.low < self.high and self.scaler == "keda" and bool(self.keda.triggers)

    @property
    def has_metric(self) -> bool:
        """Whether a HorizontalPodAutoscaler can read the metric: it is a metric that the user describes, or a resource
        metric of pods, which is also the default.
        """
        return bool(self.hpa.get("metrics")) or self.scale_metric in ("", "cpu", "memory")


def replica_policy(service: InferenceService, runtime: Runtime | None, component: str) -> ReplicaPolicy:
    """Return the policy of a component; a field that the service leaves unset is taken from the runtime's component."""
    above: Component | None = getattr(service.spec, component)
    below: Component | None = getattr(runtime.spec, f"{component}_config") if runtime else None
    return _policy(above, below, service.annotations.get(keys.AUTOSCALER_CLASS) or "", service.spec.keda_config)


def unused_settings(service: InferenceService, component: str, policy: ReplicaPolicy) -> Iterator[str]:
    """Yield sentences about settings of a component's autoscaler, as the service writes them, that have no effect because of
    its class or of its bounds. Other functions check the bounds of components with the class KEDA or Demand.
    """
    written: Component | None = getattr(service.spec, component)
    if written is None:
        return
    scaler, field = written.autoscaler, f"spec.{component}"
    checked = policy.demand or policy.scaler == "keda" or (scaler is not None and scaler.class_ in ("HPA", "External"))
    if written.max_replicas and written.max_replicas < policy.low and not checked:
        yield (
            f"{field}.maxReplicas is {written.max_replicas}, but minReplicas of the runtime is {policy.low}, which is used: "
            f"write {field}.minReplicas, too"
        )
    config = written.keda_config
    if scaler is None:
        if config is not None and config.enable_keda and policy.scaler != "keda":
            yield f"{field}.kedaConfig {_WITHOUT_KEDA}"
        return
    for name, value, class_ in (
        ("autoscaler.hpa", scaler.hpa, "HPA"),
        ("autoscaler.keda", scaler.keda, "KEDA"),
        ("scaleMetric" if written.scale_metric else "scaleTarget", written.scale_metric or written.scale_target, "HPA"),
        ("kedaConfig", config if config is not None and config.enable_keda is not False else None, "KEDA"),
    ):
        if value is not None and scaler.class_ != class_:
            yield (
                f"{field}.{name} has no effect, because {field}.autoscaler.class is {scaler.class_}: write {class_}, or "
                f"remove {name.removeprefix('autoscaler.')}"
            )
    if scaler.class_ in ("HPA", "External") and policy.low >= policy.high:
        yield f"class {scaler.class_} scales nothing for {component}: {field}.maxReplicas has to be greater than minReplicas"


def unused_classes(service: InferenceService, policies: Mapping[str, ReplicaPolicy]) -> Iterator[str]:
    """Yield sentences about the annotation with the class of the autoscalers, and about `spec.kedaConfig`, if no component
    uses them. `policies` maps each component to its policy.
    """
    written = service.annotations.get(keys.AUTOSCALER_CLASS) or ""
    unscaled = [name for name, one in policies.items() if one.scaler not in ("", *SCALERS) and not one.demand]
    used = any(
        one.scaler == written.lower() and not one.demand and (one.low < one.high or one.scaler == "keda")
        for one in policies.values()
    )
    other = [f"spec.{name}.autoscaler.class" for name in policies if _class(service, name) not in ("", written.lower())]
    if unscaled:
        demand = f", or autoscaler.class: Demand into spec.{unscaled[0]}" if written.lower() == "demand" else ""
        yield (
            f"annotation {keys.AUTOSCALER_CLASS} is {written.lower()!r}, which is not an autoscaler class, so nothing "
            f"scales {_listed(unscaled)}; write {', '.join(SCALERS[:-1])} or {SCALERS[-1]}{demand}"
        )
    elif written and other and not used:
        yield (
            f"annotation {keys.AUTOSCALER_CLASS} has no effect, because {_listed(other)} "
            f"{'takes' if len(other) == 1 else 'take'} precedence: remove the annotation"
        )
    config = service.spec.keda_config
    if config is not None and config.enable_keda and all(one.scaler != "keda" for one in policies.values()):
        yield f"spec.kedaConfig {_WITHOUT_KEDA}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else names[0]


def _class(service: InferenceService, component: str) -> str:
    """Return the class in `autoscaler` of a component, in lower case; "" if the service does not write it."""
    written: Component | None = getattr(service.spec, component)
    return written.autoscaler.class_.lower() if written is not None and written.autoscaler is not None else ""


@memoize_by_identity(2048)
def _policy(
    above: Component | None, below: Component | None, annotated: str, of_service: KedaConfig | None
) -> ReplicaPolicy:
    value: dict[str, Any] = {}
    for field in FIELDS:
        value_of_service = getattr(above, field) if above else None
        value[field] = value_of_service if value_of_service is not None else getattr(below, field) if below else None
    if above and (above.min_available is not None or above.max_unavailable is not None):
        value["min_available"], value["max_unavailable"] = above.min_available, above.max_unavailable
    low = 1 if value["min_replicas"] is None else value["min_replicas"]
    high = low if value["max_replicas"] is None else max(low, value["max_replicas"])
    scaler = value["autoscaler"]
    hpa = dict((scaler.hpa if scaler else None) or {})
    # Without a class, a metric or enableKeda implies that an autoscaler is wanted. Different values of minReplicas and
    # maxReplicas alone do not.
    config = (above.keda_config if above else None) or of_service or value["keda_config"]
    implied = "keda" if config and config.enable_keda and low < high else "hpa" if value["scale_metric"] else ""
    scaler_class = ((scaler.class_ if scaler else None) or annotated or implied).lower()
    demand = scaler is not None and scaler.class_ == "Demand"
    return ReplicaPolicy(
        low=low,
        high=high,
        min_available=value["min_available"],
        max_unavailable=value["max_unavailable"],
        scale_metric=value["scale_metric"] or "",
        scale_target=value["scale_target"] or 0,
        hpa=hpa,
        scaler=scaler_class,
        demand=demand,
        node_scale_down=value["node_scale_down"] or "",
        keda=keda_settings(scaler.keda if scaler else None, config) if scaler_class == "keda" else NO_KEDA,
        unbounded=demand and value["max_replicas"] is None,
    )
