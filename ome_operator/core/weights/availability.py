"""Which nodes hold a model, and how many of them a set of groups needs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ome_operator.core.observed.objects import Deps
from ome_operator.core.weights.mount import claim, placed, required_label


class Availability(NamedTuple):
    """Where the weights are."""

    have: int
    """Ready nodes that hold the model."""
    need: int
    """Nodes that the groups need at least."""
    everywhere: bool
    """The weights come with a claim, so no node has to hold them."""

    @property
    def enough(self) -> bool:
        """Whether every group finds a node with the weights."""
        return self.everywhere or self.have >= self.need


def held(
    identities: Sequence[Mapping[str, str]], groups: Iterable[tuple[int, int]], deps: Deps, directories: Sequence[str] = ()
) -> Availability:
    """Nodes that hold the model of a revision and all that was trained on it, against the (groups, size) of its roles.

    `directories` are their revisions' own, in the same order, where an agent made them.

    Pods of a group of several share no node, so each needs one; groups of one may share nodes, so they need one in all.
    """
    parts = list(groups)
    need = sum(count * size for count, size in parts if size > 1)
    need = max(need, 1 if any(count for count, _ in parts) else 0)
    pairs = placed(identities, directories)
    labels = [required_label(one, directory) for one, directory in pairs if claim(one["uri"]) is None]
    if not labels:
        return Availability(0, need, True)
    holders = [deps.holders.get(label, frozenset()) for label in labels]
    return Availability(len(frozenset.intersection(*holders)), need, False)
