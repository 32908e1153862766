"""A reason why a service cannot be brought up as it is written: data, never an exception that escapes `sync`."""

from dataclasses import dataclass

from ome_operator.errors import OmeError

UNREAD = "not read by this operator, which works in its own namespaces alone (clusterWideKinds is false)"
"""What is said of a cluster-wide object, where those are not read."""


@dataclass(frozen=True)
class Problem:
    """One thing that a person has to change, or that has to happen first."""

    condition: str
    """The condition that it makes False: ModelReady, RuntimeReady, EngineReady, …"""
    reason: str
    """CamelCase word of the condition."""
    message: str
    """A sentence that names the field or object, and what to do."""


class ProblemError(OmeError):
    """Carries a Problem out of nested pure functions up to `resolve.resolve`."""

    def __init__(self, condition: str, reason: str, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(condition, reason, message)
