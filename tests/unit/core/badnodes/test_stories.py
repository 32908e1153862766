"""Tests with random histories of nodes that are bad, and of services whose failures only look as if a node were bad
(docs/bad-nodes.md).
"""

import pytest

from ome_operator.core.badnodes.blame import FAILURES, LASTS, PART
from tests.conftest import SOAK
from tests.support.bad_nodes import STEP, FailingCluster, node

SEEDS = range(50) if SOAK else range(0, 50, 5)
"""Each seed is a cluster of another size, with more services or larger groups."""
HOUR = int(3600 / STEP)


def failing_cluster(seed: int) -> FailingCluster:
    """Return a simulated cluster with services of three namespaces and some free nodes."""
    made = FailingCluster(seed, 12 + seed)
    for number in range(3):
        made.add(f"team{number}", f"svc{number}", groups=1 + seed % 2, size=1 + (seed + number) % 2)
    return made


def limit(made: FailingCluster) -> int:
    """Return the largest number of nodes that the namespaces may avoid at once in this cluster."""
    return max(1, len(made.nodes) // PART)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_that_kills_its_group_each_time_is_avoided_after_three_failures(seed: int) -> None:
    made = failing_cluster(seed)
    made.step({})
    group = made.chance.choice([each for each in made.groups if each.namespace == "team0"])
    bad = made.chance.choice(group.nodes)
    for _ in range(HOUR):
        made.step({bad: 0.5})
        if made.chance.random() < 0.1:
            made.restart()
        if group.failures.count(bad) < FAILURES:
            assert bad not in made.avoided.avoided_in("team0"), "too early"
    assert group.failures.count(bad) == FAILURES
    assert made.avoided.namespaces["team0"].keys() == {bad}
    assert not made.avoided.everybody
    assert "team1" not in made.avoided.namespaces
    assert bad not in group.nodes, "the group became ready on other nodes"
    assert not group.ended
    assert made.most <= limit(made)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_service_that_fails_on_every_node_blames_none_in_the_end(seed: int) -> None:
    made = FailingCluster(seed, 12 + seed)
    made.add("team0", "broken", groups=1 + seed % 4, size=1 + seed % 3)
    made.add("team1", "fine", groups=2, size=1)
    for _ in range(2 * HOUR):
        made.step({}, frozenset({"broken"}))
        assert len(made.avoided.avoided_in("team0")) <= 1
        assert not made.avoided.avoided_in("team1")
    assert len(made.groups[0].failures) > 20
    assert not made.avoided.avoided_in("team0")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_wrong_flag_on_all_nodes_blames_none(seed: int) -> None:
    made = failing_cluster(seed)
    names = sorted(made.nodes)
    few = made.chance.sample(names, limit(made))
    for name in few:
        made.nodes[name] = node(name, ("KernelDeadlock", "the kernel hangs"))
    for _ in range(int(LASTS / STEP) + 2):
        made.step({})
    assert made.avoided.everybody.keys() == set(few)
    for name in names:
        made.nodes[name] = node(name, ("KernelDeadlock", "the kernel hangs"))
    for _ in range(int(LASTS / STEP) + 2):
        made.step({})
    assert not made.avoided.everybody
    assert made.avoided.ignored.keys() == set(names)
    assert f"{len(names)} nodes report it" in made.avoided.ignored[names[0]]


@pytest.mark.parametrize("seed", SEEDS)
def test_tenant_that_kills_its_containers_blocks_no_nodes_of_other_tenants(seed: int) -> None:
    made = failing_cluster(seed)
    for number in range(10):
        made.add("evil", f"evil{number}", groups=1, size=1)
    made.step({})
    for _ in range(2 * HOUR):
        mine = {name: 0.7 for group in made.groups if group.namespace == "evil" for name in group.nodes}
        others = {name for group in made.groups if group.namespace != "evil" for name in group.nodes}
        made.step({name: chance for name, chance in mine.items() if name not in others})
        assert not made.avoided.everybody
        assert not made.avoided.namespaces.keys() - {"evil"}
        assert len(made.avoided.avoided_in("evil")) <= limit(made)
    assert made.memory, "the operator has seen its failures"
