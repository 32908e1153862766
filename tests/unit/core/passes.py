"""Functions with which tests of complete passes query a plan and a cluster."""

from ome_operator import keys
from ome_operator.core.reconcile.plan import Plan
from tests.support.shapes import Shape
from tests.support.simulator import World


def conditions(plan: Plan) -> dict[str, tuple[str, str]]:
    """Type -> (status, reason)."""
    return {one["type"]: (one["status"], one["reason"]) for one in plan.status.get("conditions", ())}


def settled(shape: Shape) -> World:
    """A service that has come up."""
    world = World(shape.service(), shape.deps(), 3)
    world.settle()
    return world


def sets(world: World) -> set[str]:
    """Revisions that have StatefulSets."""
    return {one.labels[keys.REVISION] for (kind, _), one in world.children.items() if kind == "StatefulSet"}
