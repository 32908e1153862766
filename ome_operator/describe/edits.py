"""What differs between two versions of a spec, in the words in which people write specs."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from ome_operator.core.podspec.flags import flag

SHOWN = 60
"""Characters of one value."""
_ABSENT = object()


class Edit(NamedTuple):
    """One value that differs."""

    path: str
    """Where it stands, such as `engineConfig.runner.args`."""
    what: str
    """Such as `--mem-fraction-static 0.7 → 0.8`, `4 → 8`, `added`."""

    def __str__(self) -> str:
        return f"{self.path} {self.what}".strip()


def edits(old: Any, new: Any, path: str = "") -> Iterator[Edit]:
    """Every difference from `old` to `new`, JSON data both."""
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
        yield Edit(path, f"{shown(old)} → {shown(new)}")


def shown(value: Any) -> str:
    """A value as it would stand in YAML on one line, cut when it is long."""
    plain = isinstance(value, str) and value and value.isprintable() and value == value.strip()
    text = str(value) if plain else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _entry(old: Any, new: Any, path: str) -> Iterator[Edit]:
    if old is _ABSENT:
        yield Edit(path, f"added: {shown(new)}")
    elif new is _ABSENT:
        yield Edit(path, f"removed, was {shown(old)}")
    else:
        yield from edits(old, new, path)


def _lists(old: Sequence[Any], new: Sequence[Any], path: str) -> Iterator[Edit]:
    before, after = _named(old), _named(new)
    if before is not None and after is not None:
        if before.keys() == after.keys() and before == after:
            yield Edit(path, "in another order")
            return
        for name in [*before, *(name for name in after if name not in before)]:
            yield from _entry(before.get(name, _ABSENT), after.get(name, _ABSENT), f"{path}[{name}]")
    elif all(isinstance(one, str) for one in (*old, *new)):
        yield from _words([word for one in old for word in one.split()], [word for one in new for word in one.split()], path)
    elif len(old) == len(new):
        for number, (left, right) in enumerate(zip(old, new, strict=True)):
            yield from edits(left, right, f"{path}[{number}]")
    else:
        yield Edit(path, f"{shown(old)} → {shown(new)}")


def _named(items: Sequence[Any]) -> dict[str, Any] | None:
    """The items by what tells them apart, None when nothing does."""
    for key in ("name", "mountPath", "containerPort", "key"):
        found = {str(one[key]): one for one in items if isinstance(one, Mapping) and key in one}
        if len(found) == len(items):
            return found
    return None


def _words(old: Sequence[str], new: Sequence[str], path: str) -> Iterator[Edit]:
    """Command lines: flags by name where each stands once, other words by their place."""
    before, after = _flags(old), _flags(new)
    once = _once(before) & _once(after)
    left, right = dict(before), dict(after)
    said = [
        Edit(path, f"{name} {left[name] or 'alone'} → {right[name] or 'alone'}")
        for name, _ in before
        if name in once and left[name] != right[name]
    ]
    these, those = ([" ".join(one).strip() for one in each if one[0] not in once] for each in (before, after))
    for what, a, b, c, d in SequenceMatcher(None, these, those, autojunk=False).get_opcodes():
        if what != "equal":
            said.append(Edit(path, _replaced(" ".join(these[a:b]), " ".join(those[c:d]))))
    yield from said or [Edit(path, "the same words, ordered or spelled otherwise")]


def _once(pairs: Iterable[tuple[str, str]]) -> set[str]:
    """Flags that stand exactly once."""
    return {name for name, count in Counter(name for name, _ in pairs).items() if name and count == 1}


def _replaced(old: str, new: str) -> str:
    if not old:
        return f"added: {shown(new)}"
    return f"{shown(old)} → {shown(new)}" if new else f"removed: {shown(old)}"


def _flags(words: Sequence[str]) -> list[tuple[str, str]]:
    """(flag, value) pairs in their order; words that belong to no flag stand as ("", word)."""
    found: list[tuple[str, str]] = []
    for word in words:
        if word.startswith("--"):
            found.append((flag(word), word.partition("=")[2]))
        elif found and found[-1][0] and not found[-1][1]:
            found[-1] = found[-1][0], word
        else:
            found.append(("", word))
    return found
