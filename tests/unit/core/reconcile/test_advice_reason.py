"""Tests of the reason of the condition Advice: it is NoEffect only for a field without effect, and not for what the API
server or the cluster reports.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from ome_operator import keys
from ome_operator.core.observed.budgets import Budget
from ome_operator.core.observed.objects import Observed
from ome_operator.core.observed.validation import RevisionUnderTest, ValidationResult
from ome_operator.core.reasons import Reason
from ome_operator.core.reconcile.sync import sync
from tests.support.shapes import Shape
from tests.support.simulator import World
from tests.unit.core.passes import settled

POD_SECURITY = 'would violate PodSecurity "restricted:latest": hostPath volumes (volume "model")'


def advice(world: World, seen: Observed) -> tuple[str, str]:
    """Return the reason and the message of the condition Advice; empty if there is none."""
    told = sync(world.service, world.deps, seen, world.now).status["conditions"]
    return next(((one["reason"], one["message"]) for one in told if one["type"] == "Advice"), ("", ""))


def warned(seen: Observed) -> Observed:
    """Return the facts of a reconciliation in which the API server warns about the pods of a workload."""
    return replace(seen, warnings=(POD_SECURITY,))


def refused(seen: Observed) -> Observed:
    """Return the facts of a reconciliation in which new pods of the router are refused beside its former pods."""
    (key,) = (key for key in seen.children if key[0] == "Deployment")
    return replace(seen, children={**seen.children, key: seen.children[key]._replace(message="forbidden")})


def second_budget(seen: Observed) -> Observed:
    """Return the facts of a reconciliation in which another user's disruption budget selects the service's pods."""
    return replace(seen, budgets=(Budget("extra", {"matchLabels": {keys.COMPONENT: keys.ENGINE}}),))


@pytest.mark.parametrize("disturbed", [warned, refused, second_budget])
def test_cluster_problem_does_not_get_the_reason_no_effect(disturbed: Callable[[Observed], Observed]) -> None:
    """What the cluster reports is not called a field without effect. Reported: a namespace whose Pod Security level refused
    every pod was in Advice with the reason NoEffect.
    """
    world = settled(Shape())
    before = advice(world, world.observed())
    reason, message = advice(world, disturbed(world.observed()))
    assert before[0] != Reason.CLUSTER_WARNINGS == reason and message != before[1]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Reason.LINT_ERRORS, Reason.LINT_ERRORS),
        (Reason.LINT_WARNINGS, Reason.CLUSTER_WARNINGS),
        (Reason.NO_EFFECT, Reason.CLUSTER_WARNINGS),
    ],
)
def test_advice_condition_has_the_most_severe_reason(rule: str, expected: str) -> None:
    def judge(_: RevisionUnderTest) -> ValidationResult:
        return ValidationResult(("a rule",), (), rule)

    world = settled(Shape())
    world.deps = replace(world.deps, judge=judge)
    assert advice(world, world.observed())[0] == rule
    reason, message = advice(world, warned(world.observed()))
    assert reason == expected and "a rule" in message and POD_SECURITY in message
