"""Counts the requests of a user in the audit log."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from ome_local.audit_log import Request

OPERATOR = "system:serviceaccount:ome:ome-operator"
LEASES = "leases"
READS = ("list", "watch")


@dataclass(frozen=True)
class Count:
    """Number of requests of a user in a period. Requests about the user's Lease are counted separately, because their number
    depends only on the length of the period.
    """

    requests: int = 0
    writes: int = 0
    created: int = 0
    """Writes that created an object, except Events."""
    lease: int = 0
    refused: int = 0
    """Requests that were answered with 4xx or 5xx."""
    verbs: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    """Verb and resource → number of writes."""
    others: dict[str, int] = field(default_factory=dict)
    """Verb and resource → number of requests other than list, watch and writes."""
    discovery: int = 0
    """Requests of the discovery API. Their number does not depend on the number of services."""


def count(requests: Iterable[Request], user: str = OPERATOR) -> Count:
    """Count the requests of a user."""
    mine = [item for item in requests if item.user == user]
    about = [item for item in mine if item.resource != LEASES]
    return Count(
        requests=len(about),
        writes=sum(item.is_write for item in about),
        created=sum(item.is_write and item.code == 201 and item.resource != "events" for item in about),
        lease=len(mine) - len(about),
        refused=sum(item.code >= 400 for item in about),
        verbs=_sorted(Counter(item.verb for item in about)),
        written=_sorted(Counter(_what(item) for item in about if item.is_write)),
        others=_sorted(Counter(_what(item) for item in about if _is_other(item))),
        discovery=sum(not item.resource for item in about),
    )


def _is_other(item: Request) -> bool:
    return bool(item.resource) and not item.is_write and item.verb not in READS


def _what(item: Request) -> str:
    return f"{item.verb} {item.resource}{'/' + item.subresource if item.subresource else ''}"


def _sorted(counted: Counter[str]) -> dict[str, int]:
    return dict(counted.most_common())
