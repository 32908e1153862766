"""Record revisions: inputs and templates are stored before anything is made of them (decisions 2 and 3)."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ome_operator import names
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.observed.slices import Revision
from ome_operator.core.preflight.mode import OFF
from ome_operator.core.problem import Problem, ProblemError
from ome_operator.core.reasons import ENGINE_READY, Reason
from ome_operator.core.render import meta
from ome_operator.core.render.statefulsets import OLDEST, RENDER, workloads
from ome_operator.core.resolve.identity import equivalent, identity

SIZE_LIMIT = 200_000
"""Bytes of JSON that a ControllerRevision may hold: etcd refuses requests above 1.5 MB, and ten revisions are kept."""
Refuses = Callable[[str, Mapping[str, Any]], Problem | None]
"""Name of a new revision and what it would store -> why it is refused, None if it is accepted."""


@dataclass(frozen=True)
class RevisionLedger:
    """The stored revisions, including what was written last."""

    data: Mapping[str, Mapping[str, Any]]
    """Revision -> what its ControllerRevision stores."""
    numbers: Mapping[str, int]
    """Revision -> its number; the largest is what the user wrote last."""
    write: tuple[Manifest, ...] = ()
    """ControllerRevisions to write before anything else."""
    problems: tuple[Problem, ...] = ()
    current: bool = False
    """Whether the present inputs are stored as the newest revision already."""


def record(
    owner: meta.Owner,
    inputs: Manifest | None,
    known: Sequence[Revision],
    directories: Sequence[str],
    labels: Mapping[str, str] = MappingProxyType({}),
    looked: str = OFF,
    refused: Refuses = lambda *_: None,
) -> RevisionLedger:
    """Store `inputs` as the newest revision unless they are that already; None (an input is missing) stores nothing.

    `directories`, `labels` and `looked` are as in `workloads`. `refused` is asked only about new revisions, never about
    stored ones.
    """
    usable = [one for one in known if not former(one)]
    data: dict[str, Mapping[str, Any]] = {one.name: one.data for one in usable}
    numbers = {one.name: one.number for one in usable}
    write: tuple[Manifest, ...] = ()
    problems: tuple[Problem, ...] = ()
    current = False
    if inputs is not None:
        matched = match(inputs, usable)
        number = (known[-1].number if known else 0) + 1
        if matched is None:
            name = name_of(inputs, known)
            new, problems = _render(owner, name, inputs, directories, labels, looked)
            if new is not None and (why := refused(name, new)) is not None:
                new, problems = None, (why,)
            if new is not None:
                data[name], numbers[name] = new, number
                write = (manifest(owner, name, number, new),)
        elif matched.name != known[-1].name:  # a return to an older revision: it becomes the newest again
            numbers[matched.name] = number
            write = (manifest(owner, matched.name, number, matched.data),)
        else:
            current = True
    return RevisionLedger(data, numbers, write + _adopted(owner, usable, write), problems, current)


def _adopted(owner: meta.Owner, usable: Sequence[Revision], written: Sequence[Manifest]) -> tuple[Manifest, ...]:
    """Return orphans, which are adopted by applying them again, except those that are `written` anyway."""
    already = {each["metadata"]["name"] for each in written}
    orphans = [each for each in usable if not each.child.owner and each.child.name not in already]
    return tuple(manifest(owner, each.name, each.number, each.data) for each in orphans)


def _render(
    owner: meta.Owner, name: str, inputs: Manifest, directories: Sequence[str], labels: Mapping[str, str], looked: str
) -> tuple[Manifest | None, tuple[Problem, ...]]:
    try:
        roles, dropped = workloads(owner.name, owner.namespace, name, inputs, directories, labels, looked)
    except ProblemError as error:
        return None, (error.problem,)
    data: Manifest = {"inputs": inputs, "render": RENDER, "workloads": roles}
    if any(directories):  # not part of the inputs: a change of the directory of weights must roll nothing out
        data["directories"] = list(directories)
    if dropped:
        data["dropped"] = list(dropped)
    if (length := size(data)) > SIZE_LIMIT:
        said = (
            f"engine and decoder render to {length:,} bytes, more than the {SIZE_LIMIT:,} that a revision may "
            "hold: move large values (chat templates, configuration files) to a ConfigMap and mount it"
        )
        return None, (Problem(ENGINE_READY, Reason.REVISION_TOO_LARGE, said),)
    return data, ()


def former(one: Revision) -> bool:
    """Return whether a revision was stored in a form that can no longer be stamped."""
    return int(one.data.get("render") or 0) < OLDEST


def match(inputs: Mapping[str, Any], known: Sequence[Revision]) -> Revision | None:
    """Return the newest stored revision with these inputs."""
    return next((one for one in reversed(known) if equivalent(one.data.get("inputs") or {}, inputs)), None)


def name_of(inputs: Mapping[str, Any], known: Sequence[Revision]) -> str:
    """Return a name for new inputs: their digest, with a counter if another revision has that name."""
    taken, count, inputs = {one.name for one in known}, 0, identity(inputs)
    while (name := names.digest([inputs, count] if count else inputs)) in taken:
        count += 1
    return name


def manifest(owner: meta.Owner, revision: str, number: int, data: Mapping[str, Any]) -> Manifest:
    """Return the ControllerRevision of a revision; `data` is immutable once stored, `number` may grow."""
    name = names.revision_object(owner.name, revision)
    labels = meta.labels(owner.name, revision=revision)
    body = {"revision": number, "data": dict(data)}
    return meta.manifest(owner, "apps/v1", "ControllerRevision", name, labels, body)


def size(data: Mapping[str, Any]) -> int:
    """Return the bytes of JSON that a revision's data takes."""
    return len(json.dumps(data, separators=(",", ":")).encode())


def surplus(known: Sequence[Revision], used: frozenset[str], limit: int) -> list[Revision]:
    """Return the revisions beyond the history limit that no slice uses, oldest first."""
    spare = [one for one in known if one.name not in used]
    return spare[: max(0, len(known) - limit)]
