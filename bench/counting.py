"""Requests as numbers: what the audit log says about one user."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from ome_local.audit_log import Request

OPERATOR = "system:serviceaccount:ome:ome-operator"
LEASES = "leases"
READS = ("list", "watch")


@dataclass(frozen=True)
class Count:
    """The requests of one user over some time; those about its Lease apart, for they come with the clock."""

    requests: int = 0
    writes: int = 0
    created: int = 0
    """Writes that made an object; Events are not counted."""
    lease: int = 0
    refused: int = 0
    """Answered with 4xx or 5xx."""
    verbs: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    """Verb and resource -> writes."""
    others: dict[str, int] = field(default_factory=dict)
    """Verb and resource -> requests that neither list, watch nor write."""
    discovery: int = 0
    """Requests for which kinds are served: as many for any number of services."""


def count(requests: Iterable[Request], user: str = OPERATOR) -> Count:
    """Count the requests of a user."""
    mine = [one for one in requests if one.user == user]
    about = [one for one in mine if one.resource != LEASES]
    return Count(
        requests=len(about),
        writes=sum(one.writes for one in about),
        created=sum(one.writes and one.code == 201 and one.resource != "events" for one in about),
        lease=len(mine) - len(about),
        refused=sum(one.code >= 400 for one in about),
        verbs=_sorted(Counter(one.verb for one in about)),
        written=_sorted(Counter(_what(one) for one in about if one.writes)),
        others=_sorted(Counter(_what(one) for one in about if _is_other(one))),
        discovery=sum(not one.resource for one in about),
    )


def _is_other(one: Request) -> bool:
    return bool(one.resource) and not one.writes and one.verb not in READS


def _what(one: Request) -> str:
    return f"{one.verb} {one.resource}{'/' + one.subresource if one.subresource else ''}"


def _sorted(counted: Counter[str]) -> dict[str, int]:
    return dict(counted.most_common())
