"""Compares two versions of a spec, and describes the differences with the names of the spec's fields."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from ome_operator.core.podspec.flags import flag

SHOWN = 60
"""Maximum number of characters of a value that the text of a difference shows."""
_ABSENT = object()


class Edit(NamedTuple):
    """A difference in one value of a spec."""

    path: str
    """Path of the value in the spec, such as `engineConfig.runner.args`."""
    what: str
    """The difference as text, such as `--mem-fraction-static 0.7 → 0.8`, `4 → 8`, `added`."""

    def __str__(self) -> str:
        return f"{self.path} {self.what}".strip()


def edits(old: Any, new: Any, path: str = "") -> Iterator[Edit]:
    """Yield every difference between `old` and `new`, which are JSON data. `path` is the path of both in the spec."""
    if old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in [*old, *(key for key in new if key not in old)]:
            below = f"{path}.{key}" if path else str(key)
            yield from _entry(old.get(key, _ABSENT), new.get(key, _ABSENT), below)
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple):
        yield from _lists(old, new, path)
    elif isinstance(old, str) and isinstance(new, str) and len(old) + len(new) > 2 * SHOWN:
        yield from _words(old.split(), new.split(), path)
    else:
        yield Edit(path, f"{format_edit_value(old)} → {format_edit_value(new)}")


def format_edit_value(value: Any) -> str:
    """Return a value as text on one line, shortened to SHOWN characters."""
    plain = isinstance(value, str) and value and value.isprintable() and value == value.strip()
    text = str(value) if plain else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _entry(old: Any, new: Any, path: str) -> Iterator[Edit]:
    if old is _ABSENT:
        yield Edit(path, f"added: {format_edit_value(new)}")
    elif new is _ABSENT:
        yield Edit(path, f"removed, was {format_edit_value(old)}")
    else:
        yield from edits(old, new, path)


def _lists(old: Sequence[Any], new: Sequence[Any], path: str) -> Iterator[Edit]:
    before, after = _named(old), _named(new)
    if before is not None and after is not None:
        if before.keys() == after.keys() and before == after:
            yield Edit(path, "has another order")
            return
        for name in [*before, *(name for name in after if name not in before)]:
            yield from _entry(before.get(name, _ABSENT), after.get(name, _ABSENT), f"{path}[{name}]")
    elif all(isinstance(item, str) for item in (*old, *new)):
        yield from _words(
            [word for item in old for word in item.split()], [word for item in new for word in item.split()], path
        )
    elif len(old) == len(new):
        for number, (left, right) in enumerate(zip(old, new, strict=True)):
            yield from edits(left, right, f"{path}[{number}]")
    else:
        yield Edit(path, f"{format_edit_value(old)} → {format_edit_value(new)}")


def _named(items: Sequence[Any]) -> dict[str, Any] | None:
    """Return the items of a list by the value of the field that identifies each item, such as `name`. Return None if no
    field identifies all items.
    """
    for key in ("name", "mountPath", "containerPort", "key"):
        found = {str(item[key]): item for item in items if isinstance(item, Mapping) and key in item}
        if len(found) == len(items):
            return found
    return None


def _words(old: Sequence[str], new: Sequence[str], path: str) -> Iterator[Edit]:
    """Yield the differences between two command lines. Flags that occur once are compared by name, other words by
    position.
    """
    before, after = _flags(old), _flags(new)
    once = _once(before) & _once(after)
    left, right = dict(before), dict(after)
    messages = [
        Edit(path, f"{name} {left[name] or 'without a value'} → {right[name] or 'without a value'}")
        for name, _ in before
        if name in once and left[name] != right[name]
    ]
    these, those = ([" ".join(item).strip() for item in each if item[0] not in once] for each in (before, after))
    for what, a, b, c, d in SequenceMatcher(None, these, those, autojunk=False).get_opcodes():
        if what != "equal":
            messages.append(Edit(path, _replaced(" ".join(these[a:b]), " ".join(those[c:d]))))
    yield from messages or [Edit(path, "has the same arguments in another order or spelling")]


def _once(pairs: Iterable[tuple[str, str]]) -> set[str]:
    """Return the flags that occur exactly once in `pairs`, the result of `_flags`."""
    return {name for name, count in Counter(name for name, _ in pairs).items() if name and count == 1}


def _replaced(old: str, new: str) -> str:
    if not old:
        return f"added: {format_edit_value(new)}"
    return f"{format_edit_value(old)} → {format_edit_value(new)}" if new else f"removed: {format_edit_value(old)}"


def _flags(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs (flag, value) of a command line in order. A word that belongs to no flag is returned as ("",
    word).
    """
    found: list[tuple[str, str]] = []
    for word in words:
        if word.startswith("--"):
            found.append((flag(word), word.partition("=")[2]))
        elif found and found[-1][0] and not found[-1][1]:
            found[-1] = found[-1][0], word
        else:
            found.append(("", word))
    return found
