"""How a rollout goes, for people: what is new, what is on its way out, and why it does not move."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ome_operator import keys
from ome_operator.core.rollout.planner import ReplicaCounts, within
from ome_operator.core.rollout.step import RolloutStep
from ome_operator.names import title


def words(target: str, decision: RolloutStep, numbers: ReplicaCounts) -> str:
    """Such as "prefill 1/2 new, decode 2/4 new, old router draining", or why nothing is replaced yet."""
    if decision.held and target not in decision.groups:
        return decision.message
    counts, wanted = numbers.built.get(target, {}), numbers.wanted.get(target, {})
    both = keys.DECODER in wanted
    new = [f"{title(role, both)} {sum(counts[role].ready) if role in counts else 0}/{n} new" for role, n in wanted.items()]
    old = [f"old {title(role, both)} {said}" for role in wanted for said in _old(role, target, decision, numbers)]
    return ", ".join([*new, *old, *([decision.message] if decision.message else [])])


def _old(role: str, target: str, decision: RolloutStep, numbers: ReplicaCounts) -> list[str]:
    """What is on its way out in the slices that still serve, and what is broken there: a rollout may wait for either."""
    kept = {name: share for name, share in decision.groups.items() if name != target and role in share}
    groups = [numbers.built[name][role] for name in kept]
    have, wanted = sum(one.have for one in groups), sum(share[role] for share in kept.values())
    left, ready = sum(one.left for one in groups), sum(sum(one.ready) for one in groups)
    going = [f"draining ({have - wanted})"] if have > wanted else [f"ending ({left - have})"] if left > have else []
    return [*going, *([f"{ready}/{have} ready"] if ready < have else [])]


def hold(target: str, decision: RolloutStep, before: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Why a rollout does not move, as the status of a component has it; {} when it does."""
    if not decision.held:
        return {}
    same = (before.get("gate"), before.get("target")) == (decision.reason, target)
    since = before.get("since") if same else None
    told = {"gate": str(decision.reason), "reason": decision.message, "target": target}
    return {**told, "since": since or now.isoformat(timespec="seconds")}


def bounded(target: str, numbers: ReplicaCounts) -> bool | None:
    """Whether two slices together serve what the rollout's bounds leave; None without a second one."""
    stand = {name: counts for name, counts in numbers.seen.items() if any(one.have for one in counts.values())}
    if len(stand) < 2 or target not in numbers.wanted:
        return None
    return within(numbers.wanted[target], stand, numbers.bounds)
