"""Explain why a service is not ready, as chains of objects. A chain leads from the service to the object with the problem.
Ranks of a group with the same problem share a chain.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.core.reasons import FROZEN, ROLLED_OUT, Reason, RolloutStage, State, record_of
from ome_operator.describe import states
from ome_operator.describe.actions import CommandBuilder, of_rank
from ome_operator.describe.diagnosis import find_trouble, next_step, scheduler_reasons
from ome_operator.describe.text import combine_names, numbers
from ome_operator.describe.tree import GroupView, Rank, RoleView, SliceView, Tree
from ome_operator.describe.words import MISSING
from ome_operator.util.wording import count

OLD = "old"
"""State of a slice (the objects of one revision) that another slice replaces."""
_LEAVES = frozenset({MISSING, Reason.TERMINATING})
"""Reasons of ranks that are normal while their slice is being removed."""
SHOWN = 12
"""Maximum number of chains that are shown, the worst first. Further chains are only counted."""


class Link(NamedTuple):
    """An object in the chain of a `Cause`. Such a chain leads from a service down to the reason why the service is not
    ready.
    """

    kind: str
    name: str
    said: str
    """State of the link's object in a few words."""


@dataclass(frozen=True)
class Cause:
    """A chain of links that explains why a service is not ready, and what to do about it."""

    state: State
    links: tuple[Link, ...]
    reason: str
    message: str
    lacks: tuple[str, ...]
    """The reasons why the scheduler rejected nodes, the most frequent reason first."""
    advice: str
    """What to do, as a sentence; "" if `command` is enough, or if there is no advice."""
    command: str
    """The next command to run; "" if there is none."""
    pods: tuple[str, ...] = ()
    """Names of the affected pods. Pods with a container that has already run come first."""
    restarts: int = 0
    """The highest number of restarts of an affected rank."""
    log: str = ""
    """The command that shows the log of the first pod in `pods`."""

    @property
    def place(self) -> str:
        """The location of the problem in a few words, such as its role, group and rank."""
        shown = (link for link in self.links[2:-1] if link.kind not in ("node", "nodes"))
        return " ".join(link.name if link.kind == "role" else f"{link.kind} {link.name}" for link in shown)


def causes(tree: Tree, conditions: Iterable[Mapping[str, Any]], shell: CommandBuilder) -> list[Cause]:
    """Return all causes why a service is not ready, the worst first."""
    found = [*_pods(tree, shell), *_conditions(tree, conditions, shell)]
    return sorted(found, key=lambda cause: (cause.state.sort_position, not cause.pods, -cause.restarts))


def _pods(tree: Tree, shell: CommandBuilder) -> Iterator[Cause]:
    for part, role, group in tree.groups():
        alike: dict[tuple[str, str], list[Rank]] = {}
        for rank in group.ranks:
            if not rank.ready and not rank.draining and not (part.state == OLD and rank.reason in _LEAVES):
                alike.setdefault((rank.reason, rank.message), []).append(rank)
        for ranks in alike.values():
            yield _cause(tree, part, role, group, sorted(ranks, key=lambda rank: -rank.restarts), shell)


def _cause(tree: Tree, part: SliceView, role: RoleView, group: GroupView, ranks: list[Rank], shell: CommandBuilder) -> Cause:
    first, router = ranks[0], role.component == keys.ROUTER
    which = f"--role {role.role}" + ("" if router else f" --group {group.group}")
    prose, command = shell.step(next_step(first.reason, first.message, tree, which, role.role, part))
    return Cause(
        state=states.for_reason(first.reason),
        links=tuple(_links(tree, part, role, group, ranks)),
        reason=first.reason,
        message=first.message,
        lacks=tuple(scheduler_reasons(first.message)),
        advice=prose,
        command=command,
        pods=tuple(rank.pod for rank in ranks if rank.pod),
        restarts=first.restarts,
        log=of_rank(tree, role.role, group.group, first.rank, shell, previous=first.restarts > 0) if first.pod else "",
    )


def _links(tree: Tree, part: SliceView, role: RoleView, group: GroupView, ranks: list[Rank]) -> Iterator[Link]:
    yield Link("service", tree.name, tree.reason if not tree.ready else "serves")
    yield Link("revision", part.revision, part.state)
    many = len(ranks) > 1
    if role.component == keys.ROUTER:
        yield Link("role", role.role, f"{role.ready_pods}/{count(role.pods, 'pod')} ready")
        yield Link("pods" if many else "pod", combine_names(rank.pod for rank in ranks) or "-", _restarts(ranks))
    else:
        yield Link("role", role.role, f"{role.ready}/{count(role.wanted, 'group')} ready")
        ready = sum(rank.ready for rank in group.ranks)
        yield Link("group", str(group.group), f"{ready}/{count(len(group.ranks), 'rank')} ready")
        yield Link("ranks" if many else "rank", numbers(rank.rank for rank in ranks), _restarts(ranks))
    if nodes := combine_names(rank.node for rank in ranks if rank.node):
        yield Link("nodes" if many else "node", nodes, "")
    else:
        yield Link("node", "none yet", "")
    yield Link("reason", ranks[0].reason, "")


def _restarts(ranks: Iterable[Rank]) -> str:
    most = max(rank.restarts for rank in ranks)
    return count(most, "restart") if most else ""


def _replaces(reason: str) -> bool:
    """Return whether a condition with the reason `reason` states nothing but that a rollout starts or ends pods. Such a
    condition is no cause of its own, because the pods themselves are shown.
    """
    record = record_of(reason)
    return record.is_in_progress and record.stage in (RolloutStage.READY, RolloutStage.ALONE)


def _conditions(tree: Tree, conditions: Iterable[Mapping[str, Any]], shell: CommandBuilder) -> Iterator[Cause]:
    """Yield the causes that only conditions report. Each cause has the next step that `ome explain` prints."""
    found = find_trouble(tree, tuple(conditions), ())
    head = Link("service", tree.name, tree.reason if not tree.ready else "serves")
    for finding in found.findings:
        if finding.condition == ROLLED_OUT and _replaces(finding.reason):
            continue
        if finding.reason == Reason.FROZEN and finding.condition != FROZEN:  # every condition repeats this reason
            continue
        prose, command = shell.step(finding.next)
        links = head, Link("condition", finding.condition, ""), Link("reason", finding.reason, "")
        advisory = finding.condition in ("Advice", "ModelDrifted", "RuntimeDrifted")
        state = State.OFF if advisory else states.for_reason(finding.reason)
        yield Cause(state, links, finding.reason, finding.message, tuple(scheduler_reasons(finding.message)), prose, command)
    if not tree.ready and not found.findings and not found.pods:
        command = shell("kubectl", "describe", "isvc", tree.name, "-n", tree.namespace)
        yield Cause(
            states.for_reason(tree.reason),
            (head, Link("reason", tree.reason, "")),
            tree.reason,
            tree.message,
            (),
            "",
            command,
        )
