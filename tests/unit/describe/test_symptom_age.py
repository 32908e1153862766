"""Tests of the times that `ome explain` prints next to conditions."""

from datetime import timedelta

from ome_operator.describe.diagnosis import find_trouble
from ome_operator.describe.tree import tree
from tests.support import parts
from tests.support.simulator import World
from tests.unit.describe.test_diagnosis import NOW, text
from tests.unit.describe.test_tree import body, grown


def test_printed_age_refers_to_the_status_of_the_condition() -> None:
    """The time next to a condition is described as the age of the condition's status ("not True for 57 s"), and not of its
    reason. A condition that stays False keeps its time even when its reason changes.
    """
    since = (NOW - timedelta(seconds=57)).isoformat()
    both = [
        {
            "type": "RolledOut",
            "status": "False",
            "reason": "ConfigurationRefused",
            "message": "m",
            "lastTransitionTime": since,
        },
        {"type": "Frozen", "status": "True", "reason": "Frozen", "message": "m", "lastTransitionTime": since},
    ]
    world = grown(World(*parts.kimi(), seed=1))
    drawn = text(find_trouble(tree(body(world), world.observed()), both, ()))
    assert "RolledOut  ConfigurationRefused  not True for 57 s\n" in drawn and "Frozen  Frozen  True for 57 s\n" in drawn
