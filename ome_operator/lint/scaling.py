"""Rules about the autoscaler of a component: whether it can scale the component as the service asks for."""

from collections.abc import Iterator

from ome_operator.lint import locations
from ome_operator.lint.finding import Location, Rule, RuleHit, Severity, rule
from ome_operator.lint.subject import Subject


@rule(
    "demand-unusable",
    Severity.WARNING,
    "The spec does not allow the operator to scale the service with its demand",
    ignored="The number of groups never changes, and the condition FollowsDemand has the reason DemandIgnored.",
    evidence="The decision needs prefill, decode, routers, and targets that can be evaluated (docs/demand.md).",
)
def demand_unusable(subject: Subject) -> Iterator[RuleHit]:
    """Yield the reason why the service cannot be scaled with its demand. The operator itself would report the same reason in
    a condition.
    """
    says, _, remedy = subject.demand.partition(": ")
    if says:
        field = says.partition(" is ")[0] if says.startswith("spec.") else "spec.scalingPolicy.demand"
        yield RuleHit(Location(locations.service(subject).object, field), says, remedy)


@rule(
    "keda-missing",
    Severity.WARNING,
    "A component has an autoscaler of the class KEDA, but the cluster has no KEDA",
    ignored="Nothing scales the component: it keeps the number of its RoleScale.",
    evidence="The API server of the cluster serves no ScaledObjects. The rule is not applied to services in files.",
)
def keda_missing(subject: Subject) -> Iterator[RuleHit]:
    """Yield the components with the autoscaler class KEDA if the cluster is known not to have KEDA."""
    for role in subject.roles if subject.keda_absent else ():
        layers = ((object_, field, component.autoscaler) for object_, field, component in role.written)
        object_, field, scaler = next((layer for layer in layers if layer[2] is not None), ("", "", None))
        if scaler is not None and scaler.class_ == "KEDA":
            message = f"{field}.autoscaler.class is KEDA, but the cluster serves no ScaledObjects"
            place = Location(object_, f"{field}.autoscaler.class")
            yield RuleHit(place, message, "install KEDA, or choose HPA, External or Demand")


RULES: tuple[Rule, ...] = (demand_unusable, keda_missing)
