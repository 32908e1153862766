"""What ranks say to each other, read: whoever reaches the port says anything. What cannot be read is a ValueError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ome_operator.preflight.node import Json, finding

MOST = 65535
"""The last port."""


def hello(said: Json, now: float) -> Json:
    """How a rank introduces itself; `now`: seconds since the epoch."""
    ports = _ports(said.get("ports"))
    if not ports:
        raise ValueError("no ports")
    link, skew = number(said.get("link") or 0.0), number(said.get("clock")) - now
    return {"rank": whole(said.get("rank")), "ports": ports, "skew": skew, "link": link, "left": number(said.get("left"))}


def answer(said: Json) -> Json:
    """What a rank found; what is absent or null is left out."""
    return {name: _ANSWERS[name](value) for name, value in said.items() if name in _ANSWERS and value is not None}


def order(said: Json) -> Json:
    """What rank 0 wants next."""
    found: Json = {"do": text(said.get("do"))}
    if found["do"] in ("reach", "copy"):
        ports = said.get("ports")
        if not isinstance(ports, dict):
            raise ValueError("no ports")
        found["ports"] = {str(whole(rank)): _ports(some) for rank, some in ports.items()}
    if found["do"] == "copy":
        found["shift"] = whole(said.get("shift"))
    if found["do"] == "torch":
        found |= {"host": text(said.get("host")), "seconds": number(said.get("seconds"))}
    if found["do"] == "end":
        found["findings"] = _findings(said.get("findings"))
    return found


def whole(value: Any) -> int:
    """A small whole number; a name of a JSON object is a text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 7:
        return int(value)
    if type(value) is not int or abs(value) > MOST:
        raise ValueError("not a small number")
    return value


def number(value: Any) -> float:
    """A finite number."""
    if type(value) not in (int, float) or not abs(value) < 1e18:
        raise ValueError("not a number")
    return float(value)


def text(value: Any) -> str:
    """A short text."""
    if not isinstance(value, str) or len(value) > 1000:
        raise ValueError("not a text")
    return value


def _ports(value: Any) -> list[int]:
    return [port for port in map(whole, _list(value)) if 0 < port <= MOST]


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("not a list")
    return value


def _failed(value: Any) -> list[tuple[int, int, str]]:
    if not all(isinstance(each, list) and len(each) == 3 for each in _list(value)):
        raise ValueError("not a list of ranks, ports and reasons")
    return [(whole(rank), whole(port), text(reason)) for rank, port, reason in value]


def _findings(value: Any) -> list[Json]:
    known = [each for each in _list(value) if isinstance(each, dict)]
    return [
        finding(text(each.get("check")), text(each.get("said")), text(each.get("fix")), whole(each.get("rank", -1)))
        for each in known
    ]


def _rates(value: Any) -> dict[int, float]:
    if not isinstance(value, dict):
        raise ValueError("no rates")
    return {whole(rank): number(rate) for rank, rate in value.items()}


_ANSWERS: dict[str, Callable[[Any], Any]] = {
    "failed": _failed, "to": whole, "rate": number, "why": text, "ready": bool, "rates": _rates, "error": text,
    "findings": _findings,
}  # fmt: skip
