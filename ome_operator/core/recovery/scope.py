"""Which groups are to stay: those of the slices that are kept, as many as are wanted."""

from typing import NamedTuple

from ome_operator import keys, names
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.rollout.drain import Held
from ome_operator.core.rollout.intent import Intent
from ome_operator.names import title


class RoleGroups(NamedTuple):
    """The groups of one component of one slice that are to stay."""

    component: str
    revision: str
    title: str
    """prefill, decode, or engine."""
    size: int
    numbers: tuple[int, ...]
    """Of the groups."""
    stem: str
    """What the names of their StatefulSets begin with."""
    scale: tuple[str, int] | None
    """Name and replicas of its RoleScale."""


def scope(snapshot: Snapshot, intent: Intent, held: Held) -> list[RoleGroups]:
    """The roles of all kept slices. Slices that go, and groups beyond the wanted number, have their own order of ending."""
    out = []
    for (revision, component), retained in sorted(held.items()):
        roles = intent.roles(revision)
        scale = snapshot.controlled("RoleScale", names.component(intent.owner.name, component))
        out.append(
            RoleGroups(
                component=component,
                revision=revision,
                title=title(component, keys.DECODER in roles),
                size=roles[component].size,
                numbers=retained.numbers,
                stem=names.stem(intent.owner.name, component, revision),
                scale=(scale.name, scale.replicas) if scale is not None else None,
            )
        )
    return out
