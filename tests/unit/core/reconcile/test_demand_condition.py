"""Tests of the condition FollowsDemand in each state of the decision."""

import pytest

from ome_operator.core.demand.follow import follow
from ome_operator.core.demand.holds import HOLDS, Limit, describe_hold
from ome_operator.core.reasons import FOLLOWS_DEMAND
from ome_operator.core.reconcile.demand import DISTURBED
from ome_operator.describe.scaling import lines, view
from tests.support.demanded import BUSY, KNOWN, Demanded, spec, told
from tests.unit.core.demand.loads import NOW, samples, state

STATED = {
    "Invalid": ("False", "DemandIgnored"),
    "Frozen": ("False", "DemandFrozen"),
    "Undone": ("False", "DemandUndone"),
    "Unheard": ("False", "DemandUnknown"),
    "Unknown": ("False", "DemandUnknown"),
    "Unmeasured": ("False", "DemandUnmeasured"),
    "Unreachable": ("False", "DemandUnmet"),
    "Maximum": ("False", "DemandUnmet"),
    "Budget": ("False", "DemandUnmet"),
    "NoRoom": ("False", "DemandUnmet"),
    "Capped": ("False", "DemandUnmet"),
    "FirstStep": ("False", "DemandFirstStep"),
    **dict.fromkeys(
        ("", "Starting", "Busy", "Hole", "Late", "Errors", "CoolDown", "Cap", "Planned", "ScheduledZero"),
        ("True", "Followed"),
    ),
}
"""Reason of the decision -> status and reason of the condition: False if the service may have too few groups."""


def test_every_hold_reason_is_stated_in_the_condition() -> None:
    assert STATED.keys() - {""} == {*HOLDS}
    world = Demanded(**spec("Apply"))
    world.decide()
    assert world.scaling is not None
    for hold, stated in STATED.items():
        world.scaling = {**world.scaling, "hold": hold, "why": "write something else"}
        world.settle()
        assert told(world) == stated, hold
        message = world.condition(FOLLOWS_DEMAND)["message"]
        unmet = stated[1] in ("DemandUnmet", "DemandFirstStep", "DemandUndone")
        meaning = {"Invalid": "write something else"}.get(hold, HOLDS.get(hold, "") if stated[0] == "False" else "")
        assert message.startswith(meaning)
        assert message.lower().endswith("the size is 1 prefill and 1 decode groups") == (unmet or stated[0] == "True")


@pytest.mark.parametrize("hold", ["Maximum", "NoRoom", "FirstStep"])
def test_recommended_size_is_not_reported_as_the_current_size(hold: str) -> None:
    world = Demanded(**spec())
    world.decide()
    assert world.scaling is not None
    world.scaling = {**world.scaling, "hold": hold, "wanted": {**world.scaling["wanted"], "decode": 2}}
    world.settle()
    assert told(world) == STATED[hold]
    message = world.condition(FOLLOWS_DEMAND)["message"]
    assert message.endswith(" The wanted size is 1 prefill and 2 decode groups; the mode is Recommend")


def test_condition_says_that_further_groups_need_a_measurement() -> None:
    """The condition says that a service waits for its first step until more is measured. A single request was measured at 39
    ms. In proportion, many groups would be needed, so the number is at most doubled until more is measured.
    """
    world = Demanded(**spec("Apply", role={"maxReplicas": 9}))
    world.decide()
    world.state = world.state._replace(learned=KNOWN._replace(curve=((1.0, 0.039),)))
    world.rate = BUSY
    world.decide()
    assert world.decoders() == 2 and told(world) == ("False", "DemandFirstStep")
    assert world.service.status["scaling"]["hold"] == "FirstStep"
    world.state = world.state._replace(learned=KNOWN)
    world.decide(20)
    assert told(world) == ("True", "Followed")


def test_the_condition_counts_routers_if_they_follow_the_demand() -> None:
    router = {"minReplicas": 1, "maxReplicas": 4, "autoscaler": {"class": "Demand"}}
    world = Demanded(**{**spec(), "router": router})
    world.decide()
    assert world.condition(FOLLOWS_DEMAND)["message"] == "the size is 1 prefill and 1 decode groups, and 1 router"
    assert world.scaling is not None
    world.scaling = {**world.scaling, "wanted": {**world.scaling["wanted"], "routers": 2}}
    world.settle()
    assert (
        told(world) == ("True", "Recommended")
        and "decode groups, and 2 routers" in world.condition(FOLLOWS_DEMAND)["message"]
    )


def test_no_group_is_removed_but_groups_are_added_while_another_recovers() -> None:
    world = Demanded(**spec("Apply", role={"minReplicas": 1, "maxReplicas": 9}))
    world.children["RoleScale", "svc-decoder"].manifest["spec"]["replicas"] = 3  # as it was created
    world.settle()
    world.decide()
    world.lose(next(iter(world.living_pods("decoder"))))
    seen = set[str]()
    for _ in range(40):
        plan = world.sync()
        assert plan.demand is not None
        disturbed = {group["phase"] for group in plan.status["groups"]} & DISTURBED
        assert (plan.demand.fleet.busy == "a group has failed") == bool(disturbed)
        seen |= disturbed
        if disturbed:
            quiet, _ = follow(samples(1.0), plan.demand, state(1, 3), NOW, lambda more: more)
            busy, _ = follow(samples(150.0), plan.demand, state(1, 3), NOW, lambda more: more)
            assert (quiet.decode, quiet.hold) == (3, "Busy") and busy.decode > 3
        world.run(1)
    assert seen


PREFILL = "The demand needs more prefill groups than the maximum of prefill, which is 1: raise spec.engine.maxReplicas. "
DECODE = "The demand needs more decode groups than the maximum of decode, which is {}: raise spec.decoder.maxReplicas. "
OTHER = (
    "The demand needs more prefill groups than the service has (1), and prefill is not scaled with the demand: add groups, "
    "or write Demand into spec.engine.autoscaler.class. "
)
FED = "The number of decode groups is limited to those that the prefill groups can keep busy. "


@pytest.mark.parametrize(
    ("engine", "decoder", "rate", "says"),
    [
        ("Demand", 1, BUSY, DECODE.format(1)),
        ("Demand", 9, 150.0, PREFILL + FED),
        ("Demand", 2, 150.0, PREFILL + DECODE.format(2) + FED),
        ("External", 9, 150.0, OTHER + FED),
    ],
)
def test_condition_names_role_and_field_of_the_reached_maximum(engine: str, decoder: int, rate: float, says: str) -> None:
    whole = spec("Apply", role={"maxReplicas": decoder})
    role = {"minReplicas": 1, "maxReplicas": 1, "autoscaler": {"class": engine}}
    world = Demanded(**{**whole, "engine": role})
    world.rate = rate
    world.decide(30)
    assert told(world) == ("False", "DemandUnmet") and world.condition(FOLLOWS_DEMAND)["message"].startswith(
        f"{says}The size"
    )
    body = {"metadata": {"name": "svc", "namespace": "team"}, "spec": world.service.spec.dump()}
    found = view({**body, "status": world.service.status}, {})
    assert f"Held (Maximum): {says.strip()}" in [*lines(found)]


MORE = "The demand needs more decode groups than the service has (2), and "


def shown(world: Demanded) -> list[str]:
    """Return what `ome scale` shows of a service."""
    meta = {"name": "svc", "namespace": "team"}
    scales = {
        name: {**child.manifest, "metadata": {**child.manifest["metadata"], "generation": child.generation}}
        for (kind, name), child in world.children.items()
        if kind == "RoleScale"
    }
    return [*lines(view({"metadata": meta, "spec": world.service.spec.dump(), "status": world.service.status}, scales))]


def test_condition_asks_to_set_a_missing_maximum() -> None:
    world = Demanded(**{**spec("Apply"), "decoder": {"minReplicas": 2, "autoscaler": {"class": "Demand"}}})
    world.rate = BUSY * 3
    world.decide(30)
    says = f"{MORE}decode has no maximum, so it is not scaled: set spec.decoder.maxReplicas."
    assert world.condition(FOLLOWS_DEMAND)["message"].startswith(f"{says} The size") and f"Held (Maximum): {says}" in shown(
        world
    )


def test_condition_names_the_resume_command_for_a_manually_set_role() -> None:
    world = Demanded(**spec("Apply", role={"maxReplicas": 8}))
    world.decide(20)
    world.write_scale(2)
    world.rate = BUSY * 3
    world.decide(30)
    says = f"{MORE}somebody has set this number in its RoleScale: run `ome scale SERVICE --resume`."
    assert told(world) == ("False", "ScaledByHand") and f"Held (Maximum): {says}" in shown(world)


@pytest.mark.parametrize("edited", ["prefill", ["prefill"], {"prefill": "1"}, {"prefill": None}, {"engine": 1}, {}, None])
def test_invalid_maximum_in_status_is_ignored(edited: object) -> None:
    engine = {"engine": Limit.MAX_REPLICAS}
    assert describe_hold("Maximum", edited, engine) == HOLDS["Maximum"]
    assert (
        describe_hold("Budget", {"prefill": 1}, engine) == HOLDS["Budget"]
        and describe_hold("", None) == describe_hold("X") == ""
    )
