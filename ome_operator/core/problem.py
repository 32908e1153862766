"""Problems that prevent a service from running as its spec describes. They are data; `sync` never raises them as
exceptions.
"""

from dataclasses import dataclass

from ome_operator.errors import OmeError

NOT_READ = "not read by this operator, which reads no cluster-wide objects (clusterWideKinds is false)"
"""Part of a message about a cluster-wide object, for an operator that does not read cluster-wide objects."""


@dataclass(frozen=True)
class Problem:
    """A problem that a user has to solve, or an event that the service waits for."""

    condition: str
    """Type of the condition that the problem sets to False: ModelReady, RuntimeReady, EngineReady, …"""
    reason: str
    """Reason of the condition, as a CamelCase word."""
    message: str
    """A message that names the field or object, and states what to do."""


class ProblemError(OmeError):
    """Raised by nested pure functions to pass a Problem to a caller, which catches the exception and reports the Problem."""

    def __init__(self, condition: str, reason: str, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(condition, reason, message)
