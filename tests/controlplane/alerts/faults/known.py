"""The registry of faults: the decorator `fault` adds a fault under the name of the alert that it makes fire."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from tests.controlplane.alerts.conftest import Bed


class Fault(NamedTuple):
    """The fault that makes an alert fire."""

    happens: Callable[[Bed], AbstractContextManager[None]]
    alone: bool
    """Whether no other alert may fire between the beginning of the fault and the end of its alert."""


FAULTS: dict[str, Fault] = {}


def fault(alert: str, alone: bool = True) -> Callable[[Callable[[Bed], Iterator[None]]], None]:
    """Register a generator function as the fault that makes an alert fire: it causes the fault, yields, and ends the
    fault.
    """

    def known(happens: Callable[[Bed], Iterator[None]]) -> None:
        FAULTS[alert] = Fault(contextmanager(happens), alone)

    return known
