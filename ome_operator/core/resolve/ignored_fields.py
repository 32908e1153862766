"""What users may write and nothing here acts on: it is accepted, and the condition Advice names it."""

from collections.abc import Iterable

from ome_operator.api import Component, InferenceService, Runtime
from ome_operator.api.base import Spec
from ome_operator.util.memoize import memoize_by_identity

SERVICE = ("deployment_mode", "keda_config", "placement", "routing", "scaling_policy", "traffic")
COMPONENT = (
    "canary_traffic_percent", "container_concurrency", "keda_config",
    "topology_key", "topology_spread", "topology_spread_key",
)  # fmt: skip
LIFECYCLE = ("migration_policy", "min_ready_seconds", "ready_policy", "update_strategy")


@memoize_by_identity(1024)
def idle(service: InferenceService, runtime: Runtime | None) -> tuple[str, ...]:
    """One sentence for each field of a service, and of the components of its runtime, that has no effect."""
    said = [*_said(service.spec, SERVICE, "spec"), *_said(service.spec.model, ("overlays",), "spec.model")]
    for role, component in service.spec.components.items():
        said += _component(component, f"spec.{role}")
        if runtime is not None:
            said += _component(getattr(runtime.spec, f"{role}_config"), f"runtime {runtime.name}: spec.{role}Config")
    return tuple(said)


def _component(one: Component | None, where: str) -> Iterable[str]:
    yield from _said(one, COMPONENT, where)
    yield from _said(one.lifecycle if one else None, LIFECYCLE, f"{where}.lifecycle")


def _said(one: Spec | None, fields: Iterable[str], where: str) -> Iterable[str]:
    for field in fields:
        if one is not None and getattr(one, field):
            yield f"{where}.{type(one).model_fields[field].alias} has no effect"
