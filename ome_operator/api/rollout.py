"""Rollout settings: how a service is changed from one revision to the next."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic.alias_generators import to_snake

from ome_operator.api.base import ATOMIC, Rule, Spec
from ome_operator.api.scaling import Role
from ome_operator.api.values import Count, Duration, IntOrString, Labels, Open, Percent


def _at_most_one_of(*names: str) -> Rule:
    """Return the rule that at most one of the given fields is set."""
    attributes = [to_snake(name) for name in names]
    return Rule(
        f"[{', '.join(f'has(self.{name})' for name in names)}].filter(x, x).size() <= 1",
        f"{', '.join(names[:-1])} and {names[-1]} are mutually exclusive: keep one of them",
        lambda value: sum(getattr(value, name) is not None for name in attributes) <= 1,
    )


class RollingUpdate(Spec):
    """Replace the groups one after another."""

    max_surge: Percent | None = None
    """Number or percentage of groups above the desired number; 0 if unset, which needs no spare accelerator."""
    max_unavailable: Percent | None = None
    """Number or percentage of groups that may be missing; 1 if unset."""


class Pause(Spec):
    """A pause of the rollout: for a duration, or until a user promotes it."""

    duration: Duration | None = None
    """Duration of the pause. If unset, the annotation ome.io/rollout-promote ends the pause."""


class Metric(Spec):
    """A query whose result is compared with a threshold."""

    name: str
    """Name of the metric."""
    query: str
    """Query in PromQL."""
    operator: Literal["LT", "LTE", "GT", "GTE"]
    """Operator that compares the result with the threshold."""
    threshold: str
    """Threshold, a number as text."""


class Analysis(Spec):
    """Metrics that decide whether a step succeeded."""

    interval: Duration | None = None
    """Has no effect yet."""
    initial_delay: Duration | None = None
    """Has no effect yet."""
    failure_limit: Count | None = None
    """Has no effect yet."""
    on_inconclusive: Literal["Hold", "Rollback"] | None = None
    """Has no effect yet."""
    metrics: Annotated[list[Metric] | None, Field(max_length=10), ATOMIC] = None
    """Has no effect yet."""


class Step(Spec):
    """One step of a canary rollout."""

    capacity: IntOrString | None = None
    """Number or percentage of groups on the new revision, such as 2 or "25%"."""
    traffic: Annotated[int, Field(ge=0, le=100)] | None = None
    """Percentage of the requests that the new revision receives."""
    pause: Pause | None = None
    analysis: Analysis | None = None


class Prometheus(Spec):
    """The Prometheus server that runs the queries."""

    server_address: str | None = None
    """Has no effect yet."""
    auth_ref: Open | None = None
    """Has no effect yet."""
    headers: Labels | None = None
    """Has no effect yet."""


class Canary(Spec):
    """A canary rollout: the new revision receives a growing share of groups and requests."""

    steps: Annotated[list[Step] | None, Field(max_length=20), ATOMIC] = None
    """Has no effect yet."""
    prometheus: Prometheus | None = None
    scale_down_delay_seconds: Count | None = None
    """Has no effect yet."""
    ready_timeout: Duration | None = None
    """Has no effect yet."""


class MaintainRatio(Spec):
    """Has no effect yet: the ratio of prefill and decode groups."""

    tolerance: Annotated[int, Field(ge=0, le=100)] | None = None
    """Has no effect: prefill and decode are replaced in the same steps."""


class RolloutGroup(Spec):
    """Components that are rolled out in the same steps, and their strategy."""

    components: Annotated[list[Role], Field(min_length=1, max_length=3), ATOMIC]
    """Components of the group."""
    order: Annotated[list[Role] | None, Field(max_length=3), ATOMIC] = None
    """Has no effect: prefill and decode are replaced in the same steps."""
    canary: Canary | None = None
    blue_green: Open | None = None
    """End the old pods after the new revision is complete."""
    rolling_update: RollingUpdate | None = None
    recreate: Open | None = None
    """End the old pods before the new pods are created."""
    soak: Duration | None = None
    """Time to wait after this group before the next group."""
    maintain_ratio: MaintainRatio | None = None

    RULES = (_at_most_one_of("canary", "blueGreen", "rollingUpdate", "recreate"),)


class Rollout(Spec):
    """How a service changes from one revision to the next. A strategy that is set directly in this object, not in
    `groups`, applies to all components.
    """

    groups: Annotated[list[RolloutGroup] | None, Field(max_length=3), ATOMIC] = None
    """Strategies by component. All components follow the first strategy."""
    blue_green: Open | None = None
    """Short form: end the old pods after the new revision is complete."""
    rolling_update: RollingUpdate | None = None
    """Short form: replace the groups one after another."""
    recreate: Open | None = None
    """Short form: end the old pods before the new pods are created."""
    pairing_protocol: Annotated[str | None, Field(max_length=253)] = None
    """Has no effect: prefill and decode of different revisions are never paired."""
    paused: bool | None = None
    """If true, new revisions are recorded but not rolled out."""
    revision: Annotated[str | None, Field(max_length=253)] = None
    """Name of the revision to serve, whatever the spec contains (a pin)."""
    restarted_at: Annotated[str | None, Field(max_length=64)] = None
    """A new value creates a new revision, which restarts all pods."""
    ready_timeout: Duration | None = None
    """Time without another ready pod after which a new revision has failed; "1h" if unset."""
    on_failure: Literal["Hold", "Rollback"] | None = None
    """What happens to a new revision that failed. Hold (default): it stays. Rollback: the revision that was complete last is
    restored."""

    RULES = (_at_most_one_of("groups", "blueGreen", "rollingUpdate", "recreate"),)
