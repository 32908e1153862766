"""Functions with which tests of complete reconciliations read a plan and a simulated cluster."""

from ome_operator import keys
from ome_operator.core.reconcile.plan import Plan
from tests.support.shapes import Shape
from tests.support.simulator import World


def conditions(plan: Plan) -> dict[str, tuple[str, str]]:
    """Return the status and the reason of each condition, by type."""
    return {one["type"]: (one["status"], one["reason"]) for one in plan.status.get("conditions", ())}


def settled(shape: Shape) -> World:
    """Return a service that has become ready."""
    world = World(shape.service(), shape.deps(), 3)
    world.settle()
    return world


def sets(world: World) -> set[str]:
    """Return the revisions of which StatefulSets exist."""
    return {one.labels[keys.REVISION] for (kind, _), one in world.children.items() if kind == "StatefulSet"}
