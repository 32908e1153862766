"""Format what `ome scale SERVICE` prints: what the autoscaler of the class Demand measured, which size it wants and why, and
what keeps it from applying this size.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.core.demand.holds import Limit, describe_hold
from ome_operator.core.observed import field_managers, from_api
from ome_operator.core.observed.objects import Child
from ome_operator.core.rollout.applied import set_by_hand
from ome_operator.util import columns
from ome_operator.util.wording import count

_ROLE = {keys.ENGINE: "prefill", keys.DECODER: "decode", keys.ROUTER: "routers"}

DAYS = ("DAY", "GPU-HOURS", "GPU-HOURS AS WANTED", "WITHIN TARGET", "WITHIN TARGET AS WANTED")
"""Column titles of the table of days."""


class ScalingView(NamedTuple):
    """The state of a service's scaling, as `ome scale SERVICE` prints it."""

    service: str
    namespace: str
    mode: str
    """Recommend or Apply; "" if the service is not scaled with its demand, or if nothing was decided yet."""
    demanded: bool
    """Whether a component of the service's spec has the autoscaler class Demand."""
    groups: Mapping[str, int]
    """Maps each role to the number of groups, or of routers, that the service is set to have."""
    ready: Mapping[str, int]
    """Maps each role to the number of groups, or of routers, that are ready."""
    wanted: Mapping[str, int]
    """Maps each role to the number of groups, or of routers, that the autoscaler of the class Demand wants; empty before
    its first decision."""
    hold: str
    """The reason why the wanted size differs from the size that the demand needs; "" if the two are equal."""
    meaning: str
    """The explanation of the reason in `hold`."""
    why: str
    speeds: Mapping[str, str]
    """Maps each role to a text that states how the speed of its groups is known, for example from measurements."""
    writers: Mapping[str, str]
    """Maps the name of each RoleScale in `by_hand` to the field manager that wrote its `spec.replicas`, such as kubectl."""
    by_hand: tuple[str, ...]
    """Names of the RoleScales whose `spec.replicas` somebody other than the operator has set: a person, or a
    HorizontalPodAutoscaler. The component has this number of groups instead of the autoscaler's number."""
    traffic: Mapping[str, Any]
    """The field `status.traffic` of the service."""
    decisions: tuple[Mapping[str, Any], ...]
    days: tuple[Mapping[str, Any], ...]
    learned: Mapping[str, Any]


def view(body: Mapping[str, Any], scales: Mapping[str, Mapping[str, Any]]) -> ScalingView:
    """Return the scaling of a service. `body` is the service as the API server returns it, and `scales` are its RoleScales
    by name.
    """
    status = body.get("status") or {}
    scaling = status.get("scaling") or {}
    decided = scaling.get("applied") or {}
    known = {name: from_api.child("RoleScale", scale) for name, scale in scales.items()}
    written = [name for name, one in known.items() if set_by_hand(one) and one.labels.get(keys.COMPONENT) in decided]
    components = {_ROLE[name]: one for name, one in (status.get("components") or {}).items() if name in _ROLE}
    hold = str(scaling.get("hold") or "")
    return ScalingView(
        service=body["metadata"]["name"],
        namespace=body["metadata"]["namespace"],
        mode=str(scaling.get("mode") or ""),
        demanded=bool(_demanded(body)),
        groups={role: int(each.get("replicas") or 0) for role, each in components.items()},
        ready={role: int(each.get("readyReplicas") or 0) for role, each in components.items()},
        wanted=scaling.get("wanted") or {},
        hold=hold,
        meaning=describe_hold(hold, scaling.get("atMaximum"), _limits(body, known, written)),
        why=str(scaling.get("why") or ""),
        speeds=scaling.get("speeds") or {},
        writers={name: field_managers.replicas_writer(scales[name].get("metadata") or {}) for name in sorted(written)},
        by_hand=tuple(sorted(written)),
        traffic=status.get("traffic") or {},
        decisions=tuple(scaling.get("decisions") or ()),
        days=tuple(scaling.get("days") or ()),
        learned=scaling.get("learned") or {},
    )


def _demanded(body: Mapping[str, Any]) -> list[str]:
    """Return the components that have the autoscaler class Demand in the spec of the service."""
    spec = body.get("spec") or {}
    return [name for name in _ROLE if ((spec.get(name) or {}).get("autoscaler") or {}).get("class") == "Demand"]


def _limits(body: Mapping[str, Any], scales: Mapping[str, Child], written: Collection[str]) -> dict[str, Limit]:
    """Return what limits the number of groups of each component that has the autoscaler class Demand. `scales` are the
    RoleScales of the service by name, and `written` the names of the RoleScales whose `spec.replicas` somebody has set by
    hand.

    Only a component with maxReplicas has a RoleScale. So a RoleScale shows that a component has maxReplicas, even if the
    runtime sets this field and not the service.
    """
    spec, component_of = body.get("spec") or {}, {name: one.labels.get(keys.COMPONENT) for name, one in scales.items()}
    found = dict.fromkeys(_demanded(body), Limit.UNSET)
    for name in found:
        if (spec.get(name) or {}).get("maxReplicas") is not None or name in component_of.values():
            found[name] = Limit.MAX_REPLICAS
        if name in map(component_of.get, written):
            found[name] = Limit.BY_HAND
    return found


def own_why(scaling_view: ScalingView) -> str:
    """Return the explanation of the size of the service (`scaling_view.why`); "" if the explanation of the hold
    (`scaling_view.meaning`) is the same sentence.
    """
    return "" if scaling_view.why == scaling_view.meaning else scaling_view.why


def size(prefill: int, decode: int, routers: int) -> str:
    """Return a size in words, such as "2 prefill and 1 decode groups, and 1 router"."""
    return f"{prefill} prefill and {decode} decode groups, and {count(routers, 'router')}"


def lines(scaling_view: ScalingView) -> Iterator[str]:
    """Yield the lines that `ome scale SERVICE` prints."""
    where = f"{scaling_view.namespace}/{scaling_view.service}"
    if not scaling_view.mode:
        if scaling_view.demanded:
            yield (
                f"{where} has the autoscaler class Demand, but the autoscaler has decided nothing yet: `ome explain "
                f"{scaling_view.service} -n {scaling_view.namespace}` shows what it waits for."
            )
        else:
            yield f"{where} is not scaled with its demand: no component has the autoscaler class Demand (docs/demand.md)."
        return
    yield f"{where}: mode {scaling_view.mode}"
    yield from columns.lines([("ROLE", "SIZE", "READY", "WANTS", "SPEED"), *_sizes(scaling_view)])
    if scaling_view.traffic:
        yield f"Seen at {scaling_view.traffic.get('time')}: {_seen(scaling_view.traffic)}"
    if why := own_why(scaling_view):
        yield f"Why: {why}"
    if scaling_view.hold:
        yield f"Held ({scaling_view.hold}): {scaling_view.meaning}"
    for name, writer in scaling_view.writers.items():
        is_hpa, end = (
            writer == field_managers.HPA,
            f"`ome scale {scaling_view.service} -n {scaling_view.namespace} --resume`",
        )
        who = "written by a HorizontalPodAutoscaler" if is_hpa else "set by hand"
        first = (
            (f"delete the HorizontalPodAutoscaler if it still exists (`kubectl get hpa -n {scaling_view.namespace}`), then ")
            if is_hpa
            else ""
        )
        applies = "its number applies instead of the demand"
        yield f"RoleScale {name} was {who}, and {applies}. To follow the demand again: {first}{end}"
    if scaling_view.decisions:
        yield ""
        yield from columns.lines([("DECISION", "PREFILL", "DECODE", "ROUTERS", "HELD", "WHY"), *_decisions(scaling_view)])
    if scaling_view.days:
        yield ""
        yield from columns.lines([DAYS, *_days(scaling_view)])


def _sizes(scaling_view: ScalingView) -> Iterator[tuple[str, ...]]:
    for role in _ROLE.values():
        size, ready = scaling_view.groups.get(role, 0), scaling_view.ready.get(role, 0)
        yield role, str(size), str(ready), str(scaling_view.wanted.get(role, "-")), str(scaling_view.speeds.get(role, "-"))


def _seen(traffic: Mapping[str, Any]) -> str:
    messages = []
    if (rate := traffic.get("requestsPerSecond")) is not None:
        messages.append(f"{rate} requests/s arrive")
    for role in traffic.get("roles") or ():
        numbers = [f"{role[name]} {name}" for name in ("running", "waiting") if role.get(name) is not None]
        if numbers:
            messages.append(f"{role.get('name')} has {' and '.join(numbers)}")
    if (slow := (traffic.get("timeToFirstToken") or {}).get("p95")) is not None:
        upper = f"at most {slow['upTo']} s" if slow.get("upTo") is not None else f"more than {slow.get('above')} s"
        messages.append(f"95% of the first tokens come after {upper}")
    return ", ".join(messages) or "no numbers"


def _decisions(scaling_view: ScalingView) -> Iterator[tuple[str, ...]]:
    for each in reversed(scaling_view.decisions):
        size = (str(each.get(role, "-")) for role in ("prefill", "decode", "routers"))
        yield str(each.get("time")), *size, str(each.get("hold") or "-"), str(each.get("why") or "-")


def _days(scaling_view: ScalingView) -> Iterator[tuple[str, ...]]:
    for each in scaling_view.days:
        requests = float(each.get("requests") or 0)
        shares = (f"{float(each.get(name) or 0) / requests:.1%}" if requests else "-" for name in ("met", "metWanted"))
        hours = (f"{float(each.get(name) or 0):,.1f}" for name in ("gpuHours", "gpuHoursWanted"))
        yield str(each.get("day")), *hours, *shares
