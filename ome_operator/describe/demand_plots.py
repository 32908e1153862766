"""Plots of a service that is scaled with its demand: its last decisions and its last days (docs/demand.md)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ome_operator.describe.plots import Plot, line, plot
from ome_operator.describe.scaling import ScalingView

_ROLES = {"prefill": "Prefill groups", "decode": "Decode groups", "routers": "Routers"}


def demand_plots(scaling_view: ScalingView, seen: Sequence[ScalingView] = ()) -> list[Plot]:
    """Return the plots of a service; [] before the first decision of the autoscaler:

    * for each role, the ready groups and the wanted groups over time,
    * for each role, the wanted groups of the last decisions, next to the number of groups that is set now,
    * for the last days, the GPU-hours and the share of requests within the target: as measured, and as they would have been
      with the wanted groups.

    `scaling_view` is the current scaling of the service. `seen` contains its scaling at equal intervals, the newest last.
    """
    return [*_ready(seen), *_roles(scaling_view), *_days(scaling_view)] if scaling_view.wanted else []


def _ready(seen: Sequence[ScalingView]) -> Iterator[Plot]:
    for role, title in _ROLES.items() if seen else ():
        ready = [float(one.ready.get(role, 0)) for one in seen]
        wanted = (_number(one.wanted.get(role)) for one in seen)
        yield _pair(f"{title} ready", "", list(zip(ready, wanted, strict=True)), steps=True)


def _roles(scaling_view: ScalingView) -> Iterator[Plot]:
    for role, title in _ROLES.items():
        has, now = float(scaling_view.groups.get(role, 0)), _number(scaling_view.wanted.get(role))
        values = [*(_number(one.get(role)) for one in scaling_view.decisions), now]
        most = max([has, *(value for value in values if value is not None)])
        real, wanted = plot(title, "", [has]), plot(title, "", [now])
        yield Plot(title, f"{real.now} ({wanted.now})", line(values, most, steps=True), f"{most:g}", line([has, has], most))


def _days(scaling_view: ScalingView) -> Iterator[Plot]:
    hours = [(_number(day.get("gpuHours")), _number(day.get("gpuHoursWanted"))) for day in scaling_view.days]
    yield _pair("GPU-hours a day", "", hours)
    yield _pair("In time, by day", " %", [_shares(day) for day in scaling_view.days])


def _pair(title: str, unit: str, values: Sequence[tuple[float | None, float | None]], *, steps: bool = False) -> Plot:
    """Return a plot of pairs (actual value, wanted value) as two lines. With `steps`, a line stays at each value until the
    next one.
    """
    real, wanted = [one for one, _ in values], [other for _, other in values]
    made, as_wanted = plot(title, unit, real), plot(title, unit, wanted)
    most = max((value for value in (*real, *wanted) if value is not None), default=0.0)
    now = f"{made.now} ({as_wanted.now})"
    largest = plot(title, unit, [most]).most if most else made.most
    return replace(made, now=now, points=line(wanted, most, steps=steps), other=line(real, most, steps=steps), most=largest)


def _shares(day: Mapping[str, Any]) -> tuple[float | None, float | None]:
    requests, met, wanted = (_number(day.get(name)) for name in ("requests", "met", "metWanted"))
    if not requests or met is None or wanted is None:
        return None, None
    return 100 * met / requests, 100 * wanted / requests


def _number(value: Any) -> float | None:
    """Return a value of the status as a number; None if it is not a number, for example because somebody has edited the
    status.
    """
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**53
    return float(value) if known else None
