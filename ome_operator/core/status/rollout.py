"""Describe the progress of a rollout for users: which groups are new, which are being removed, and why the rollout is
held.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ome_operator import keys
from ome_operator.core.rollout.planner import ReplicaCounts, is_within_bounds
from ome_operator.core.rollout.step import RolloutStep
from ome_operator.names import role_title


def progress_message(target: str, decision: RolloutStep, numbers: ReplicaCounts) -> str:
    """Return a sentence such as "prefill 1/2 new, decode 2/4 new, old router draining". If no group is replaced yet, return
    the reason. `target` is the name of the target revision.
    """
    if decision.held and target not in decision.groups:
        return decision.message
    counts, wanted = numbers.built.get(target, {}), numbers.wanted.get(target, {})
    both = keys.DECODER in wanted
    new = [
        f"{role_title(role, both)} {sum(counts[role].ready) if role in counts else 0}/{n} new" for role, n in wanted.items()
    ]
    old = [f"old {role_title(role, both)} {state}" for role in wanted for state in _old(role, target, decision, numbers)]
    return ", ".join([*new, *old, *([decision.message] if decision.message else [])])


def _old(role: str, target: str, decision: RolloutStep, numbers: ReplicaCounts) -> list[str]:
    """Return texts about the groups of a role in revisions other than the target: how many are being removed, and how many
    are ready. A rollout may wait for both.
    """
    kept = {name: share for name, share in decision.groups.items() if name != target and role in share}
    groups = [numbers.built[name][role] for name in kept]
    have, wanted = sum(group.existing for group in groups), sum(share[role] for share in kept.values())
    left, ready = sum(group.left for group in groups), sum(sum(group.ready) for group in groups)
    going = [f"draining ({have - wanted})"] if have > wanted else [f"ending ({left - have})"] if left > have else []
    return [*going, *([f"{ready}/{have} ready"] if ready < have else [])]


def hold_fields(target: str, decision: RolloutStep, before: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return the reason why a rollout is held, in the form of a component's status; {} if it is not held."""
    if not decision.held:
        return {}
    same = (before.get("gate"), before.get("target")) == (decision.reason, target)
    since = before.get("since") if same else None
    fields = {"gate": str(decision.reason), "reason": decision.message, "target": target}
    return {**fields, "since": since or now.isoformat(timespec="seconds")}


def meets_bounds(target: str, numbers: ReplicaCounts) -> bool | None:
    """Return whether the revisions that have groups together have at least the serving capacity that the bounds of the
    rollout require; None if only one revision has groups. `target` is the name of the target revision.
    """
    existing = {
        name: counts for name, counts in numbers.observed_counts.items() if any(group.existing for group in counts.values())
    }
    if len(existing) < 2 or target not in numbers.wanted:
        return None
    return is_within_bounds(numbers.wanted[target], existing, numbers.bounds)
