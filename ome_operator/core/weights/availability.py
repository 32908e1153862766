"""Determine how many nodes have the weights of a revision, and how many nodes the groups of the revision need."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from ome_operator.core.observed.objects import Deps
from ome_operator.core.weights.mount import agents_can_download, claim, required_label, with_directories
from ome_operator.settings.policy import ENABLE_AGENTS, SILENT_AGENTS
from ome_operator.util.wording import count


class LocalWeights(NamedTuple):
    """Weights that pods mount from the disk of a node: a model or fine-tuned weights."""

    title: str
    """Description of the weights for messages: "model tiny", "fine-tuned weight poet"."""
    label: str
    """Key of the label that a node must have with the value `Ready`."""
    ready_nodes: int
    """Number of ready nodes on which the label has the value `Ready`."""
    fetched: bool
    """Whether agents download the weights and set the label."""
    unfetched: str = ""
    """URI of the weights if agents could download them, but no agent runs; "" otherwise."""
    former: bool = False
    """Whether agents run and could download the weights, but the revision was made while no agents ran."""
    by_name: str = ""
    """Text that names the label of the model and the number of nodes that have it, if these nodes do not have the label
    `label` of the revision; "" otherwise."""


class Availability(NamedTuple):
    """The number of nodes that have all weights of a revision, compared with the number that is required."""

    ready_nodes: int
    """Number of ready nodes that have all of the weights."""
    need: int
    """Smallest number of nodes on which the groups can run."""
    everywhere: bool
    """Whether all weights come from volume claims, so that no node has to have them."""
    parts: tuple[LocalWeights, ...] = ()
    """The weights of the revision, except weights that come from a volume claim."""
    known: bool = True
    """Whether the operator reads nodes. If it does not, the count is unknown and nothing waits for the weights."""

    @property
    def has_enough_nodes(self) -> bool:
        """Whether enough nodes have the weights for every group."""
        return self.everywhere or not self.known or self.ready_nodes >= self.need

    @property
    def sentence(self) -> str:
        """A message with the number of nodes. If there are too few nodes, it names the weights that are on too few nodes."""
        if short := self._short:
            titles = " and ".join(f"{part.title} on {count(part.ready_nodes, 'node')}" for part in short)
            return f"{titles}, {self.need} needed"
        titles = " and ".join(part.title for part in self.parts) + (" together" if len(self.parts) > 1 else "")
        return f"{titles} on {count(self.ready_nodes, 'node')}, {self.need} needed"

    @property
    def remedy(self) -> str:
        """The actions that make the weights available on a node, as a text."""
        parts = self._short or self.parts
        if by_hand := [f"{part.label}=Ready" for part in parts if not part.fetched]:
            label = f"label each node that has the files: kubectl label node NODE {' '.join(by_hand)}"
            if unfetched := [part.unfetched for part in parts if part.unfetched]:
                uris = " and ".join(unfetched)
                return f"this operator uses no model agents, so nothing downloads {uris}: {ENABLE_AGENTS}, or {label}"
            if any(part.former for part in parts):
                return f"{label}. The revision was made without model agents, so its storage does not change"
            return label
        message = (
            f"agents set the label {' and '.join(f'{part.label}=Ready' for part in parts)} on nodes that have the files"
        )
        message += "".join(f"; {part.by_name} does not count for this revision" for part in parts if part.by_name)
        if any(not part.ready_nodes for part in parts):
            message += f". {SILENT_AGENTS}"
        return message

    @property
    def _short(self) -> tuple[LocalWeights, ...]:
        """Those weights that are on too few nodes; () if each of the weights is on enough nodes, even if these are not the
        same nodes.
        """
        return () if self.has_enough_nodes else tuple(part for part in self.parts if part.ready_nodes < self.need)


def availability(
    identities: Sequence[Mapping[str, str]], groups: Iterable[tuple[int, int]], deps: Deps, directories: Sequence[str] = ()
) -> Availability:
    """Return the nodes with all weights of a revision, compared with the number that its groups need.

    `identities` are the model and the fine-tuned weights, and `directories` the directories of their revisions in the same
    order, if an agent created them. `groups` are (number of groups, pods per group) of each role.

    Pods of a group of several pods do not share nodes, so each pod needs a node. Groups of a single pod may share one node.
    """
    sizes = list(groups)
    need = sum(count * size for count, size in sizes if size > 1)
    need = max(need, 1 if any(count for count, _ in sizes) else 0)
    holders: list[AbstractSet[str]] = []
    parts: list[LocalWeights] = []
    for identity, directory in with_directories(identities, directories):
        if claim(identity["uri"]) is None:
            label = required_label(identity, directory)
            holders.append(deps.holders.get(label, frozenset()))
            parts.append(_local(identity, label, len(holders[-1]), bool(directory), deps))
    if not parts:
        return Availability(0, need, True)
    together = len(holders[0]) if len(holders) == 1 else len(frozenset(holders[0]).intersection(*holders[1:]))
    return Availability(together, need, False, tuple(parts), deps.policy.sees_cluster)


def _local(identity: Mapping[str, str], label: str, have: int, fetched: bool, deps: Deps) -> LocalWeights:
    agents, uri = deps.policy.model_agent, identity["uri"]
    plain = required_label(identity, "")
    named = len(deps.holders.get(plain, ())) if fetched and not have else 0
    return LocalWeights(
        _title(identity), label, have, fetched,
        unfetched=uri if agents_can_download(uri) and not agents else "",
        former=agents and agents_can_download(uri) and not fetched,
        by_name=f"the label {plain}=Ready on {count(named, 'node')}" if named else "",
    )  # fmt: skip


def _title(identity: Mapping[str, str]) -> str:
    what = "fine-tuned weight" if identity["kind"] == "FineTunedWeight" else "model"
    return f"{what} {identity['name']}"
