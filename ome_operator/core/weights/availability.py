"""Which nodes hold a model, and how many of them a set of groups needs."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from ome_operator.core.observed.objects import Deps
from ome_operator.core.weights.mount import claim, placed, required_label


class LocalWeights(NamedTuple):
    """Weights that pods mount from the disk of a node: a model, or what was trained on it."""

    title: str
    """What people call them: "model tiny", "fine-tuned weight poet"."""
    label: str
    """Label key that a node must carry as `Ready`."""
    have: int
    """Ready nodes that carry it."""
    fetched: bool
    """Whether agents fetch the weights and so set the label."""


class Availability(NamedTuple):
    """Where the weights are."""

    have: int
    """Ready nodes that hold all of the weights."""
    need: int
    """Nodes that the groups need at least."""
    everywhere: bool
    """The weights come with a claim, so no node has to hold them."""
    parts: tuple[LocalWeights, ...] = ()
    """The weights one by one, without those that come with a claim."""
    known: bool = True
    """Whether nodes are read: else nobody can say, and nothing waits for it."""

    @property
    def enough(self) -> bool:
        """Whether every group finds a node with the weights."""
        return self.everywhere or not self.known or self.have >= self.need

    @property
    def sentence(self) -> str:
        """On how many nodes the weights are; where that is too few, which of them lack."""
        if short := self._short:
            return f"{' and '.join(f'{part.title} on {part.have} nodes' for part in short)}, {self.need} needed"
        together = " together" if len(self.parts) > 1 else ""
        return f"{' and '.join(part.title for part in self.parts)}{together} on {self.have} nodes, {self.need} needed"

    @property
    def remedy(self) -> str:
        """What a node needs that is to hold them, and who sees to that."""
        parts = self._short or self.parts
        if by_hand := [f"{part.label}=Ready" for part in parts if not part.fetched]:
            return f"label each node that has the files: kubectl label node NODE {' '.join(by_hand)}"
        return f"agents set the label {' and '.join(f'{part.label}=Ready' for part in parts)} on nodes that have the files"

    @property
    def _short(self) -> tuple[LocalWeights, ...]:
        """The weights that are on too few nodes; () where each is on enough, though not on the same ones."""
        return () if self.enough else tuple(part for part in self.parts if part.have < self.need)


def availability(
    identities: Sequence[Mapping[str, str]], groups: Iterable[tuple[int, int]], deps: Deps, directories: Sequence[str] = ()
) -> Availability:
    """Nodes that hold the model of a revision and all that was trained on it, against the (groups, size) of its roles.

    `directories` are their revisions' own, in the same order, where an agent made them.

    Pods of a group of several share no node, so each needs one; groups of one may share nodes, so they need one in all.
    """
    sizes = list(groups)
    need = sum(count * size for count, size in sizes if size > 1)
    need = max(need, 1 if any(count for count, _ in sizes) else 0)
    holders: list[AbstractSet[str]] = []
    parts: list[LocalWeights] = []
    for identity, directory in placed(identities, directories):
        if claim(identity["uri"]) is None:
            label = required_label(identity, directory)
            holders.append(deps.holders.get(label, frozenset()))
            parts.append(LocalWeights(_title(identity), label, len(holders[-1]), bool(directory)))
    if not parts:
        return Availability(0, need, True)
    together = len(holders[0]) if len(holders) == 1 else len(frozenset(holders[0]).intersection(*holders[1:]))
    return Availability(together, need, False, tuple(parts), deps.policy.sees_cluster)


def _title(identity: Mapping[str, str]) -> str:
    what = "fine-tuned weight" if identity["kind"] == "FineTunedWeight" else "model"
    return f"{what} {identity['name']}"
