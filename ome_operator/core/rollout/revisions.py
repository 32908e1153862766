"""Record revisions: inputs and rendered templates are stored before any object is created from them (decisions 2 and 3)."""

import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ome_operator import names
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.observed.slices import Revision
from ome_operator.core.problem import Problem, ProblemError
from ome_operator.core.reasons import ENGINE_READY, Reason
from ome_operator.core.render import meta
from ome_operator.core.render.statefulsets import NO_DEFAULTS, OLDEST, RENDER, Defaults, workloads
from ome_operator.core.resolve.identity import equivalent, identity

SIZE_LIMIT = 200_000
"""Largest number of bytes of the JSON that a ControllerRevision stores. etcd refuses requests above 1.5 MB, and ten
revisions are kept."""
Refuses = Callable[[str, Mapping[str, Any]], Problem | None]
"""A function that returns why the operator refuses a new revision, from its name and the data that it would store; None
if the operator accepts the revision."""


@dataclass(frozen=True)
class RevisionLedger:
    """The stored revisions of a service, including a revision that this pass stores."""

    data: Mapping[str, Mapping[str, Any]]
    """The data that the ControllerRevision of each revision stores."""
    numbers: Mapping[str, int]
    """The number of each revision. The revision with the largest number is what the user wrote last."""
    write: tuple[Manifest, ...] = ()
    """ControllerRevisions to write before all other objects."""
    problems: tuple[Problem, ...] = ()
    current: bool = False
    """Whether the newest stored revision was made from the present inputs."""


def record(
    owner: meta.Owner,
    inputs: Manifest | None,
    known: Sequence[Revision],
    directories: Sequence[str],
    labels: Mapping[str, str] = MappingProxyType({}),
    defaults: Defaults = NO_DEFAULTS,
    refused: Refuses = lambda *_: None,
    unusable: Container[str] = (),
) -> RevisionLedger:
    """Store `inputs` as the newest revision, unless they are the newest revision already. If `inputs` is None (an input
    is missing), no revision is stored.

    `known` are the stored revisions, the newest last. `directories`, `labels` and `defaults` are the arguments of
    `workloads`, which renders the data of a new revision. `refused` returns why a new revision must not be stored; it is not
    called for stored revisions. `unusable` are the names of stored revisions that must not be used
    (`Snapshot.restored_revisions`).
    """
    usable = [one for one in known if not is_former_format(one) and one.name not in unusable]
    data: dict[str, Mapping[str, Any]] = {one.name: one.data for one in usable}
    numbers = {one.name: one.number for one in usable}
    write: tuple[Manifest, ...] = ()
    problems: tuple[Problem, ...] = ()
    current = False
    if inputs is not None:
        matched = find_equivalent(inputs, usable)
        number = (known[-1].number if known else 0) + 1
        if matched is None:
            name = name_of(inputs, known)
            new, problems = _render(owner, name, inputs, directories, labels, defaults)
            if new is not None and (why := refused(name, new)) is not None:
                new, problems = None, (why,)
            if new is not None:
                data[name], numbers[name] = new, number
                write = (manifest(owner, name, number, new),)
        elif matched.name != known[-1].name:  # a return to an older revision, which becomes the newest again
            numbers[matched.name] = number
            write = (manifest(owner, matched.name, number, matched.data),)
        else:
            current = True
    return RevisionLedger(data, numbers, write + _adopted(owner, usable, write), problems, current)


def _adopted(owner: meta.Owner, usable: Sequence[Revision], written: Sequence[Manifest]) -> tuple[Manifest, ...]:
    """Return the manifests of orphaned revisions, which are adopted by applying them again. Revisions that are in
    `written` are left out.
    """
    already = {each["metadata"]["name"] for each in written}
    orphans = [each for each in usable if not each.child.owner and each.child.name not in already]
    return tuple(manifest(owner, each.name, each.number, each.data) for each in orphans)


def _render(
    owner: meta.Owner,
    name: str,
    inputs: Manifest,
    directories: Sequence[str],
    labels: Mapping[str, str],
    defaults: Defaults,
) -> tuple[Manifest | None, tuple[Problem, ...]]:
    try:
        roles, dropped = workloads(owner.name, owner.namespace, name, inputs, directories, labels, defaults)
    except ProblemError as error:
        return None, (error.problem,)
    data: Manifest = {"inputs": inputs, "render": RENDER, "workloads": roles}
    if any(directories):  # not part of the inputs, because a change of the directory of weights must not cause a rollout
        data["directories"] = list(directories)
    if dropped:
        data["dropped"] = list(dropped)
    if (length := size(data)) > SIZE_LIMIT:
        message = (
            f"engine and decoder render to {length:,} bytes, more than the {SIZE_LIMIT:,} that a revision may "
            "hold: move large values (chat templates, configuration files) to a ConfigMap and mount it"
        )
        return None, (Problem(ENGINE_READY, Reason.REVISION_TOO_LARGE, message),)
    return data, ()


def is_former_format(one: Revision) -> bool:
    """Return whether a revision was stored in an old form, from which StatefulSets can no longer be written."""
    return int(one.data.get("render") or 0) < OLDEST


def find_equivalent(inputs: Mapping[str, Any], known: Sequence[Revision]) -> Revision | None:
    """Return the newest revision in `known` whose inputs are equivalent to `inputs`; None if no revision has equivalent
    inputs.
    """
    return next((one for one in reversed(known) if equivalent(one.data.get("inputs") or {}, inputs)), None)


def name_of(inputs: Mapping[str, Any], known: Sequence[Revision]) -> str:
    """Return the name of a revision for new inputs: the digest of the inputs, with a counter if another revision has that
    name.
    """
    taken, count, inputs = {one.name for one in known}, 0, identity(inputs)
    while (name := names.digest([inputs, count] if count else inputs)) in taken:
        count += 1
    return name


def manifest(owner: meta.Owner, revision: str, number: int, data: Mapping[str, Any]) -> Manifest:
    """Return the ControllerRevision of a revision. The stored `data` of a revision never changes; its `number` may
    increase.
    """
    name = names.revision_object(owner.name, revision)
    labels = meta.labels(owner.name, revision=revision)
    body = {"revision": number, "data": data}
    return meta.manifest(owner, "apps/v1", "ControllerRevision", name, labels, body)


def size(data: Mapping[str, Any]) -> int:
    """Return the number of bytes of the data of a revision as JSON."""
    return len(json.dumps(data, separators=(",", ":")).encode())


def revisions_beyond_limit(known: Sequence[Revision], used: frozenset[str], limit: int) -> list[Revision]:
    """Return the oldest revisions in `known` that exceed the history limit and are not in `used`, the oldest
    first.
    """
    spare = [one for one in known if one.name not in used]
    return spare[: max(0, len(known) - limit)]
