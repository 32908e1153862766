"""Parse the messages of ranks. They are untrusted, because any process that reaches the port can send messages. Invalid
messages raise ValueError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ome_operator.preflight.node import Json, finding

MAX_PORT = 65535
"""The highest port number."""


def parse_hello(data: Json, now: float) -> Json:
    """Parse the first message of a rank; `now` is in seconds since the epoch."""
    ports = _ports(data.get("ports"))
    if not ports:
        raise ValueError("ports are missing")
    link, skew = number(data.get("link") or 0.0), number(data.get("clock")) - now
    return {"rank": whole(data.get("rank")), "ports": ports, "skew": skew, "link": link, "left": number(data.get("left"))}


def parse_answer(data: Json) -> Json:
    """Parse the results of a rank; fields that are absent or null are left out."""
    return {name: _ANSWERS[name](value) for name, value in data.items() if name in _ANSWERS and value is not None}


def parse_order(data: Json) -> Json:
    """Parse the next request of rank 0."""
    result: Json = {"do": text(data.get("do"))}
    if result["do"] in ("reach", "copy"):
        ports = data.get("ports")
        if not isinstance(ports, dict):
            raise ValueError("ports are missing")
        result["ports"] = {str(whole(rank)): _ports(values) for rank, values in ports.items()}
    if result["do"] == "copy":
        result["shift"] = whole(data.get("shift"))
    if result["do"] == "torch":
        result |= {"host": text(data.get("host")), "seconds": number(data.get("seconds"))}
    if result["do"] == "end":
        result["findings"] = _findings(data.get("findings"))
    return result


def whole(value: Any) -> int:
    """Return a value as a small whole number. It may be a decimal string, because the names in a JSON object are strings.
    Raises ValueError for any other value.
    """
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 7:
        return int(value)
    if type(value) is not int or abs(value) > MAX_PORT:
        raise ValueError("not a small number")
    return value


def number(value: Any) -> float:
    """Return a value as a finite number. Raises ValueError for any other value."""
    if type(value) not in (int, float) or not abs(value) < 1e18:
        raise ValueError("not a number")
    return float(value)


def text(value: Any) -> str:
    """Return a value as a short string. Raises ValueError for any other value."""
    if not isinstance(value, str) or len(value) > 1000:
        raise ValueError("not a short string")
    return value


def _ports(value: Any) -> list[int]:
    return [port for port in map(whole, _list(value)) if 0 < port <= MAX_PORT]


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("not a list")
    return value


def _failed(value: Any) -> list[tuple[int, int, str]]:
    if not all(isinstance(item, list) and len(item) == 3 for item in _list(value)):
        raise ValueError("not a list of ranks, ports and reasons")
    return [(whole(rank), whole(port), text(reason)) for rank, port, reason in value]


def _findings(value: Any) -> list[Json]:
    items = [item for item in _list(value) if isinstance(item, dict)]
    return [
        finding(text(item.get("check")), text(item.get("said")), text(item.get("fix")), whole(item.get("rank", -1)))
        for item in items
    ]


def _rates(value: Any) -> dict[int, float]:
    if not isinstance(value, dict):
        raise ValueError("rates are not an object")
    return {whole(rank): number(rate) for rank, rate in value.items()}


_ANSWERS: dict[str, Callable[[Any], Any]] = {
    "failed": _failed, "to": whole, "rate": number, "why": text, "ready": bool, "rates": _rates, "error": text,
    "findings": _findings,
}  # fmt: skip
