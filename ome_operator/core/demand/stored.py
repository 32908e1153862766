"""The form in which the state of a service's scaling is stored in its status."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ome_operator import quantity
from ome_operator.core.demand.facts import GROUPS, Configuration, LearnedProperties, PrefillWork, ScalingState, SizeDecision

Manifest = dict[str, Any]


def to_status(state: ScalingState) -> Manifest:
    """Return the state as a part of a status. Numbers are rounded, so that noise alone does not change the status."""
    out: Manifest = {"decisions": [_decision(one) for one in state.last]}
    if state.wanted is not None:
        out["wanted"] = dict(zip(("prefill", "decode", "routers"), state.wanted, strict=True))
    if state.changed:
        out["changedAt"] = _time(state.changed)
    if state.changes:
        out["changes"] = [_time(at) for at in state.changes]
    parts = {"learned": _learned(state.learned), "former": _learned(state.former)}
    return {**out, **{name: part for name, part in parts.items() if part}}


def _learned(known: LearnedProperties) -> Manifest:
    """Return measurements as a part of a status; {} if there are none."""
    out: Manifest = {}
    if known.work is not None:
        out["prefill"] = {
            "fixedMilliseconds": _round(1000 * known.work.fixed),
            "tokenMicroseconds": _round(1e6 * known.work.token),
            "scale": _round(known.scale),
            "measurements": known.measured,
        }
    if known.shown is not None:
        shown = {"shownPrompt": _round(known.shown[0]), "shownMilliseconds": _round(1000 * known.shown[1])}
        out["prefill"] = {**out.get("prefill", {}), **shown}
    if known.curve:
        out["decode"] = [{"requests": _round(x), "milliseconds": _round(1000 * y)} for x, y in known.curve]
    if known.request is not None:
        out["request"] = {"prompt": _round(known.request[0]), "answer": _round(known.request[1])}
    if known.starts:
        out["startSeconds"] = [round(seconds) for seconds in known.starts]
    named = {role: str(one) for role, one in zip(GROUPS, known.configurations, strict=True) if one.template}
    if named:
        out["configurations"] = named
    return out


def from_status(stored: Mapping[str, Any]) -> ScalingState:
    """Return the state that a stored status contains. An invalid field counts as missing, because users can edit the
    status.
    """
    wanted = _map(stored.get("wanted"))
    size = [_count(wanted.get(name)) for name in ("prefill", "decode", "routers")]
    return ScalingState(
        learned=_stored_learned(stored.get("learned")),
        former=_stored_learned(stored.get("former")),
        wanted=None if None in size else (size[0] or 0, size[1] or 0, size[2] or 0),
        changed=_seconds(stored.get("changedAt")) or 0.0,
        changes=tuple(at for one in _list(stored.get("changes")) if (at := _seconds(one))),
        last=tuple(made for one in _list(stored.get("decisions")) if (made := _stored_decision(_map(one))) is not None),
    )


def _stored_learned(stored: Any) -> LearnedProperties:
    learned = _map(stored)
    work, scale, measured = _work(_map(learned.get("prefill")))
    points = (
        (_number(_map(one).get("requests")), _number(_map(one).get("milliseconds"))) for one in _list(learned.get("decode"))
    )
    prefill, decode = (_configuration(_map(learned.get("configurations")).get(role)) for role in GROUPS)
    return LearnedProperties(
        work=work,
        scale=scale,
        measured=measured,
        shown=_pair(_map(learned.get("prefill")), "shownPrompt", "shownMilliseconds", 1000),
        curve=tuple(sorted({x: y / 1000 for x, y in points if x and y}.items())),
        request=_pair(_map(learned.get("request")), "prompt", "answer"),
        starts=tuple(seconds for one in _list(learned.get("startSeconds")) if (seconds := _number(one))),
        configurations=(prefill, decode),
    )


def _configuration(stored: Any) -> Configuration:
    template, _, hardware = (stored if isinstance(stored, str) else "").partition(" ")
    return Configuration(template, hardware)


def _work(stored: Mapping[str, Any]) -> tuple[PrefillWork | None, float, int]:
    fixed, token = _number(stored.get("fixedMilliseconds")), _number(stored.get("tokenMicroseconds"))
    if fixed is None or token is None or fixed + token <= 0:
        return None, 1.0, 0
    return (
        PrefillWork(fixed / 1000, token / 1e6),
        _number(stored.get("scale")) or 1.0,
        _count(stored.get("measurements")) or 0,
    )


def _pair(stored: Mapping[str, Any], one: str, two: str, divisor: float = 1) -> tuple[float, float] | None:
    """Return the numbers in the fields `one` and `two` of a stored status, the second divided by `divisor`; None if one of
    the numbers is missing or 0.
    """
    first, second = _number(stored.get(one)), _number(stored.get(two))
    return (first, second / divisor) if first and second else None


def _decision(size_decision: SizeDecision) -> Manifest:
    out: Manifest = {
        "time": _time(size_decision.at),
        "prefill": size_decision.prefill,
        "decode": size_decision.decode,
        "routers": size_decision.routers,
    }
    if size_decision.hold:
        out["hold"] = str(size_decision.hold)
    out["why"] = size_decision.why
    return out


def _stored_decision(stored: Mapping[str, Any]) -> SizeDecision | None:
    at = _seconds(stored.get("time"))
    size = [_count(stored.get(name)) for name in ("prefill", "decode", "routers")]
    if at is None or None in size:
        return None
    return SizeDecision(
        at, size[0] or 0, size[1] or 0, size[2] or 0, str(stored.get("hold") or ""), str(stored.get("why") or "")
    )


def _time(at: float) -> str:
    return quantity.rfc3339(datetime.fromtimestamp(round(at), UTC))


def _seconds(text: Any) -> float | None:
    when = quantity.parse_instant(text)
    return None if when is None else when.timestamp()


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def _number(value: Any) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**53
    return float(value) if known else None


def _count(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return list(value)[:100] if isinstance(value, list | tuple) else []
