"""Stories of a service whose nodes are tainted and recover in any order, while the operator restarts, rollouts run, and pods
are lost.
"""

import random
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ome_operator import keys
from tests.conftest import SOAK
from tests.support.moving import Fleet, Movable, serving
from tests.support.shapes import seeds

STORIES = settings(max_examples=200 if SOAK else 12)
LENGTH = 60
"""Number of passes in which things happen, with ten seconds between two passes."""


def movable(size: st.SearchStrategy[int]) -> st.SearchStrategy[Movable]:
    """Return a strategy for services with `spec.moves`."""
    without = st.sampled_from([(), (("withoutReplacement", "Go"), ("timeout", "10m"))])
    return st.builds(
        Movable, size=size, engines=st.integers(1, 3), decoders=st.integers(0, 2), router=st.booleans(), moves=without
    )


def interrupted(fleet: Fleet, chance: random.Random) -> None:
    """Run a pass. In one of five cases, the new status is not stored, and the operator is restarted."""
    status = fleet.world.service.status
    fleet.run()
    if chance.random() < 0.2:
        fleet.world.service = replace(fleet.world.service, status=status)
        fleet.world.restart()


def rolled_out(fleet: Fleet) -> bool:
    """Return whether the status reports, for the current spec, that the newest revision is complete and the only one."""
    service = fleet.world.service
    current = service.status.get("observedGeneration") == service.generation
    return current and fleet.world.condition("RolledOut").get("status") == "True"


def ends_whole(fleet: Fleet) -> None:
    """Bring all nodes back, withdraw all requests, and check that the service becomes complete and that no move is left."""
    for name in fleet.world.deps.nodes:
        fleet.change(name, taints=(), ready=True, move="")
    fleet.world.service = replace(fleet.world.service, annotations={})
    fleet.until("quiet", lambda: not fleet.moves() and fleet.whole() and rolled_out(fleet), passes=1500)
    fleet.run(20)
    assert all(len(fleet.groups(role)) == count for role, count in fleet.wanted.items() if role != keys.ROUTER)
    assert not any(pod.draining or keys.DELETION_COST in pod.notes for pod in fleet.world.pods.values() if not pod.deleting)


@STORIES
@given(movable(st.integers(1, 3)), seeds)
def test_every_role_keeps_serving_during_moves_with_spare_nodes(shape: Movable, seed: int) -> None:
    """One node after another gets a taint, for a long time or for a moment, and there are enough spare nodes for a group of
    every role. Every role keeps all of its groups serving.
    """
    shape = replace(shape, moves=())
    fleet, chance = serving(shape, spare=2 * shape.size + 1, seed=seed), random.Random(seed)
    for _ in range(LENGTH):
        if chance.random() < 0.15:
            for name in fleet.world.deps.nodes:
                fleet.untaint(name)
            fleet.taint(chance.choice(sorted(fleet.world.deps.nodes)))
        interrupted(fleet, chance)
        assert fleet.whole(), f"{fleet.moves()}\n{fleet.world.log[-20:]}"
    gone = [name for name, node in fleet.world.deps.nodes.items() if node.taints]
    left = {pod.name for pod in fleet.world.pods.values() if pod.node in gone}
    fleet.until("left", lambda: not {pod.name for pod in fleet.world.pods.values() if pod.node in gone}, 1500, whole=True)
    assert left.isdisjoint(pod.name for pod in fleet.world.pods.values() if pod.node in gone)
    ends_whole(fleet)


@STORIES
@given(movable(st.integers(1, 3)), st.integers(0, 3), seeds)
@example(Movable(size=3, engines=1, decoders=2), 0, 252)
def test_at_most_one_group_per_role_moves_and_the_service_becomes_complete(shape: Movable, spare: int, seed: int) -> None:
    """Taints, cordons, requests for groups and for nodes (also without a replacement), freezes, pauses, rollouts, lost pods
    and restarts happen in any order. At most one group of a role moves at a time, and in the end the service is complete.
    """
    fleet, chance = serving(shape, spare=spare, seed=seed), random.Random(seed)
    world = fleet.world

    def taint() -> None:
        fleet.taint(chance.choice(sorted(world.deps.nodes)))

    def untaint() -> None:
        fleet.untaint(chance.choice(sorted(world.deps.nodes)))

    def freeze() -> None:
        world.service = replace(world.service, annotations={keys.FREEZE: "look"} if chance.random() < 0.5 else {})

    def ask() -> None:
        text = f"engine/{chance.randint(0, 3)} {world.now.isoformat()}"
        world.service = replace(world.service, annotations={keys.MOVE: text})

    def cordon() -> None:
        fleet.change(chance.choice(sorted(world.deps.nodes)), ready=chance.random() < 0.5)

    def ask_node() -> None:
        text = chance.choice([f"{world.now.isoformat()} now", world.now.isoformat(), ""])
        fleet.change(chance.choice(sorted(world.deps.nodes)), move=text)

    def lose() -> None:
        if world.pods:
            world.lose(chance.choice(sorted(world.pods)))

    def edit() -> None:
        fleet.shape = replace(fleet.shape, image=chance.choice("ab"), paused=chance.random() < 0.3)
        deps = replace(fleet.shape.deps(), nodes=world.deps.nodes, policy=world.deps.policy)
        world.edit(fleet.shape.service(), deps)

    for _ in range(LENGTH):
        if chance.random() < 0.3:
            chance.choice([taint, taint, untaint, cordon, freeze, ask, ask_node, lose, edit])()
        interrupted(fleet, chance)
    fleet.shape = replace(fleet.shape, paused=False)
    world.edit(fleet.shape.service(), world.deps)
    ends_whole(fleet)


@STORIES
@given(movable(st.integers(1, 3)), seeds)
def test_a_group_leaves_an_avoided_node_and_never_moves_to_one(shape: Movable, seed: int) -> None:
    """Some nodes are avoided because groups failed there: two free nodes, and one on which a group serves. That node and
    others are drained one after another. Every group leaves its drained node, and no group moves to an avoided node.
    """
    shape = replace(shape, moves=())
    fleet, chance = serving(shape, spare=2 * shape.size + 3, seed=seed), random.Random(seed)
    engines = [pod for pod in fleet.world.pods.values() if pod.labels[keys.COMPONENT] != keys.ROUTER]
    used, before = sorted({pod.node for pod in engines}), {pod.uid for pod in engines}
    left = chance.choice(used)
    bad = {left, *chance.sample(sorted(fleet.world.deps.nodes.keys() - set(used)), 2)}
    fleet.world.avoided = dict.fromkeys(sorted(bad), "engine of team/svc failed there 3 times")

    def check() -> bool:
        """Check that no pod that was created during the test is on an avoided node. Return whether the drained node has no
        engine pod any more.
        """
        pods = [pod for pod in fleet.world.pods.values() if pod.labels[keys.COMPONENT] != keys.ROUTER]
        assert not {pod.node for pod in pods if pod.uid not in before} & bad, fleet.world.log[-20:]
        return left not in {pod.node for pod in pods if not pod.deleting}

    fleet.taint(left)
    fleet.until("left", check, 1500, whole=True)
    for _ in range(2):
        left = chance.choice(sorted({*fleet.nodes_of(keys.ENGINE), *fleet.nodes_of(keys.DECODER)}))
        for name in fleet.world.deps.nodes:
            fleet.untaint(name)
        fleet.taint(left)
        fleet.until("left", check, 1500, whole=True)


@STORIES
@given(movable(st.integers(1, 3)), seeds)
def test_serving_group_is_deleted_only_if_others_serve_or_spec_allows_it(shape: Movable, seed: int) -> None:
    """Taints are added and removed, and there are no spare nodes. A group that serves is only deleted while other groups
    serve, or if the service permits it. With `Stay`, none is deleted.
    """
    shape = replace(shape, moves=())
    fleet, chance = serving(shape, spare=0, seed=seed), random.Random(seed)
    serves = {
        uid
        for name, uid in fleet.world.living_pods().items()
        if fleet.world.pods[name].labels[keys.COMPONENT] != keys.ROUTER
    }
    for _ in range(LENGTH):
        if chance.random() < 0.3:
            (fleet.taint if chance.random() < 0.6 else fleet.untaint)(chance.choice(sorted(fleet.world.deps.nodes)))
        interrupted(fleet, chance)
        assert serves <= set(fleet.world.living_pods().values())
    ends_whole(fleet)


@STORIES
@given(movable(st.integers(1, 3)), st.integers(0, 4), seeds)
def test_ome_move_places_no_group_on_the_named_node(shape: Movable, spare: int, seed: int) -> None:
    """`ome move` names one node after another, with or without `--now`. There may be too few other nodes, nobody cordons
    the named nodes, and the operator restarts at times. No pod is created on a named node.
    """
    fleet, chance = serving(replace(shape, moves=()), spare=spare, seed=seed), random.Random(seed)

    def on(name: str) -> set[str]:
        """Return the UIDs of the engine pods on a node."""
        return {
            pod.uid for pod in fleet.world.pods.values() if pod.node == name and pod.labels[keys.COMPONENT] != keys.ROUTER
        }

    for _ in range(3):
        fleet.until("quiet", lambda: fleet.whole() and not fleet.moves())
        named = chance.choice(sorted({*fleet.nodes_of(keys.ENGINE), *fleet.nodes_of(keys.DECODER)}))
        before = on(named)
        fleet.change(named, move=f"{fleet.world.now.isoformat()}{chance.choice(['', ' now'])}")
        for _ in range(LENGTH):
            interrupted(fleet, chance)
            assert on(named) <= before, fleet.world.log[-20:]
        fleet.change(named, move="")
    ends_whole(fleet)
