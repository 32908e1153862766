"""The changes that a plan contains."""

from ome_operator.core.reconcile.plan import Plan


def effects(plan: Plan) -> tuple[str, ...]:
    """Return the changes of a plan as text."""
    applies = (*plan.first, *plan.apply)
    said = [f"apply {one.manifest['kind']} {one.manifest['metadata']['name']}" for one in applies]
    said += [f"secret {one.manifest['metadata']['name']}" for one in plan.ensure_secret]
    said += [f"create {one.manifest['metadata']['name']}" for one in plan.create]
    said += [f"status {one.manifest['metadata']['name']}" for one in plan.apply_status]
    said += [f"patch {one.kind} {one.name}" for one in plan.patch]
    said += [f"scale {one.name}" for one in plan.scale]
    said += [f"delete {one.kind} {one.name}" for one in plan.delete]
    said += [f"recycle {delete.name}" for one in plan.recycle for delete in one.delete]
    said += [f"check {one.revision}" for one in plan.check]
    return tuple(said)
