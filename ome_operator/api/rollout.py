"""How a service goes from one revision to the next."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic.alias_generators import to_snake

from ome_operator.api.base import ATOMIC, Rule, Spec
from ome_operator.api.scaling import Role
from ome_operator.api.values import Count, Duration, IntOrString, Labels, Open, Percent


def _one_of(*names: str) -> Rule:
    """At most one of these fields."""
    attributes = [to_snake(name) for name in names]
    return Rule(
        f"[{', '.join(f'has(self.{name})' for name in names)}].filter(x, x).size() <= 1",
        f"{', '.join(names[:-1])} and {names[-1]} exclude each other: keep one of them",
        lambda value: sum(getattr(value, name) is not None for name in attributes) <= 1,
    )


class RollingUpdate(Spec):
    """Group by group."""

    max_surge: Percent | None = None
    """Groups above the wanted number; 0 when unset, which needs no spare accelerator."""
    max_unavailable: Percent | None = None
    """Groups that may be missing; 1 when unset."""


class Pause(Spec):
    """A stop: for a time, or until someone promotes."""

    duration: Duration | None = None
    """Without it the annotation ome.io/rollout-promote ends the pause."""


class Metric(Spec):
    """A query whose result is compared with a threshold."""

    name: str
    """Name of the metric."""
    query: str
    """Query in PromQL."""
    operator: Literal["LT", "LTE", "GT", "GTE"]
    """How the result is compared with the threshold."""
    threshold: str
    """A number."""


class Analysis(Spec):
    """Metrics that decide whether a step was good."""

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
    """One stage of a canary."""

    capacity: IntOrString | None = None
    """Groups on the new revision: a count, or a share such as "25%"."""
    traffic: Annotated[int, Field(ge=0, le=100)] | None = None
    """Percent of the requests for the new revision."""
    pause: Pause | None = None
    analysis: Analysis | None = None


class Prometheus(Spec):
    """Where analyses ask."""

    server_address: str | None = None
    """Has no effect yet."""
    auth_ref: Open | None = None
    """Has no effect yet."""
    headers: Labels | None = None
    """Has no effect yet."""


class Canary(Spec):
    """A growing share of groups and requests."""

    steps: Annotated[list[Step] | None, Field(max_length=20), ATOMIC] = None
    """Has no effect yet."""
    prometheus: Prometheus | None = None
    scale_down_delay_seconds: Count | None = None
    """Has no effect yet."""
    ready_timeout: Duration | None = None
    """Has no effect yet."""


class MaintainRatio(Spec):
    """How far prefill and decode may drift from their ratio, in percent."""

    tolerance: Annotated[int, Field(ge=0, le=100)] | None = None
    """Has no effect: prefill and decode step together."""


class RolloutGroup(Spec):
    """Components that roll together, and how."""

    components: Annotated[list[Role], Field(min_length=1, max_length=3), ATOMIC]
    """Components that it is for."""
    order: Annotated[list[Role] | None, Field(max_length=3), ATOMIC] = None
    """Has no effect: prefill and decode step together."""
    canary: Canary | None = None
    blue_green: Open | None = None
    """The new slice is complete before the old slice goes."""
    rolling_update: RollingUpdate | None = None
    recreate: Open | None = None
    """The old slice goes, then the new slice comes."""
    soak: Duration | None = None
    """Wait after the group, before the next group."""
    maintain_ratio: MaintainRatio | None = None

    RULES = (_one_of("canary", "blueGreen", "rollingUpdate", "recreate"),)


class Rollout(Spec):
    """How a service goes from one revision to the next. A strategy directly below is the short form for all components."""

    groups: Annotated[list[RolloutGroup] | None, Field(max_length=3), ATOMIC] = None
    """A strategy for components; all of them follow the first."""
    blue_green: Open | None = None
    """Short form: the new slice is complete before the old slice goes."""
    rolling_update: RollingUpdate | None = None
    """Short form: group by group."""
    recreate: Open | None = None
    """Short form: the old slice goes, then the new slice comes."""
    pairing_protocol: Annotated[str | None, Field(max_length=253)] = None
    """Opaque: engine and decoder pods pair only when theirs are equal or unset."""
    paused: bool | None = None
    """New revisions are recorded and not rolled out."""
    revision: Annotated[str | None, Field(max_length=253)] = None
    """Pin: this revision is served whatever the spec says."""
    restarted_at: Annotated[str | None, Field(max_length=64)] = None
    """A new value makes a new revision: a restart on demand."""
    ready_timeout: Duration | None = None
    """How long a new slice may go without another pod becoming ready before it counts as failed; "1h" when unset."""
    on_failure: Literal["Hold", "Rollback"] | None = None
    """What then becomes of it: it stays (Hold, when unset), or the revision that was whole last comes back (Rollback)."""

    RULES = (_one_of("groups", "blueGreen", "rollingUpdate", "recreate"),)
