"""The stored revisions of a service as a list for people: what changed from one to the next, and what runs."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.resolve.identity import CHOSEN
from ome_operator.rollout.revisions import Revision
from ome_operator.rollout.target import Target

NAMED = 3
"""Changes that a line names."""
SHORT = 40
"""Characters up to which values are shown."""


class Line(NamedTuple):
    """One stored revision."""

    number: int
    revision: str
    state: str
    """What it is to the service now, "" when it is only kept."""
    changed: str
    """What its inputs have that those before had not."""


def lines(known: list[Revision], aim: Target, slices: Iterable[Mapping[str, Any]]) -> list[Line]:
    """The stored revisions, oldest first; `slices` from the status of the service."""
    inputs = [one.data.get("inputs") or {} for one in known]
    pairs = zip(known, [None, *inputs], inputs, strict=False)
    return [Line(one.number, one.name, _state(one.name, aim, slices), changed(old, new)) for one, old, new in pairs]


def before(known: list[Revision], aim: Target) -> str:
    """Where an undo goes: the revision that was whole last, else the one before what the user asks for; "" for nowhere."""
    rejected = {one["revision"] for one in aim.rejected}
    older = itertools.takewhile(lambda one: one.name != aim.wish, known)
    return aim.back or next((one.name for one in reversed(list(older)) if one.name not in rejected), "")


def changed(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> str:
    """What differs between the inputs of two revisions, in a few words; `before` None for the first that is kept."""
    if before is None:
        return "the oldest that is kept"
    said = list(_differences("", _named(before), _named(after)))
    more = f", and {len(said) - NAMED} more" if len(said) > NAMED else ""
    return ", ".join(said[:NAMED]) + more


def _named(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs with the name of the runtime instead of the whole reference to it."""
    out = {key: value for key, value in inputs.items() if key != CHOSEN}
    return {**out, "runtime": {**out.get("runtime", {}), "name": (inputs.get(CHOSEN) or {}).get("name", "")}}


def _differences(path: str, before: Any, after: Any) -> Iterator[str]:
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted(before.keys() | after.keys()):
            yield from _differences(f"{path}.{key}".lstrip("."), before.get(key), after.get(key))
    elif (left := _by_name(before)) is not None and (right := _by_name(after)) is not None and left.keys() | right.keys():
        yield from _differences(path, left, right)
    elif before is None:
        yield f"+ {path}{_value(': ', after)}"
    elif after is None:
        yield f"- {path}"
    elif _value("", before) and _value("", after):
        yield f"{path}: {before} → {after}"
    else:
        yield path


def _by_name(value: Any) -> dict[str, Any] | None:
    """A list of named things by their names; None when it is no such list."""
    if isinstance(value, list) and all(isinstance(one, Mapping) and one.get("name") for one in value):
        return {one["name"]: one for one in value}
    return None


def _value(before: str, value: Any) -> str:
    """A short plain value behind some text, "" for everything else."""
    plain = isinstance(value, str | int | float) and 0 < len(str(value)) <= SHORT
    return f"{before}{value}" if plain else ""


def _state(revision: str, aim: Target, slices: Iterable[Mapping[str, Any]]) -> str:
    out = []
    for one in slices:
        if one.get("revision") == revision:
            counts = (f"{role} {one[role]}" for role in _ROLES if role in one)
            out.append(f"runs ({', '.join(counts)})")
    if revision == aim.pin:
        out.append("pinned")
    elif revision == aim.revision:
        out.append("wanted")
    out += ["rejected" for one in aim.rejected if one["revision"] == revision]
    return ", ".join(out)


_ROLES = ("prefill", "decode", keys.ENGINE, keys.DECODER, keys.ROUTER)

