"""The faults by their alerts: `fault` adds to them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from tests.controlplane.alerts.conftest import Bed


class Fault(NamedTuple):
    """The fault that makes an alert fire."""

    happens: Callable[[Bed], AbstractContextManager[None]]
    alone: bool
    """No other alert fires from its beginning until it has cleared."""


FAULTS: dict[str, Fault] = {}


def fault(alert: str, alone: bool = True) -> Callable[[Callable[[Bed], Iterator[None]]], None]:
    """Names what fires an alert."""

    def known(happens: Callable[[Bed], Iterator[None]]) -> None:
        FAULTS[alert] = Fault(contextmanager(happens), alone)

    return known
