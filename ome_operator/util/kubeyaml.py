"""YAML as Kubernetes reads it, which is less than YAML has: no dates, no sets, no numbers with colons; and not too deep."""

import json
import math
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import yaml

from ome_operator.util.json_limits import deeper, larger

LEVELS = 100
"""Of lists and maps in each other, at most: no object of Kubernetes comes near it."""
VALUES = 500_000
"""Of one object, at most: an API server takes no two megabytes, but aliases can name the same part again and again."""
_OPEN = 200
"""Brackets that stand open in a text at once, at most; there may be some in texts, where they mean nothing."""
_UNLIKE = re.compile(
    r"[^\n\r -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"  # tabs and other control characters
    r"|[!?]|[|>][-+0-9]*#"  # tags, marks of keys, comments at once after the mark of a block
)
"""What the two parsers of PyYAML may not take the same."""
_LET_THROUGH = (ValueError, TypeError, AttributeError, LookupError)
"""Of a broken key, or of a value that is none of its tag: PyYAML makes no errors of its own of them."""
_TAG = "tag:yaml.org,2002:"
_NOT_THERE = tuple(_TAG + one for one in ("timestamp", "binary", "set", "omap", "pairs"))
_GONE = frozenset(_TAG + one for one in ("timestamp", "value"))


class _Values(yaml.constructor.SafeConstructor, yaml.resolver.Resolver):
    """What texts, numbers and tags mean, for every reader below."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the parent declares it so
        first: [(tag, form) for tag, form in found if tag not in _GONE]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def refuse(self, node: yaml.Node) -> Any:
        """A tag that Kubernetes does not know."""
        tag = node.tag.rpartition(":")[2]
        said = f"Kubernetes reads no !!{tag}: write a text in quotes, a list or a map instead"
        raise yaml.constructor.ConstructorError(None, None, said, node.start_mark)

    def number(self, node: Any) -> Any:
        """A whole number; base 60 (`12:30`) is a text, as Kubernetes reads it."""
        if ":" in node.value:
            return node.value
        try:
            return self.construct_yaml_int(node)
        except ValueError as error:
            said = f"a number of {len(node.value)} characters is too long: put quotes around it, or write a shorter one"
            raise yaml.constructor.ConstructorError(None, None, said, node.start_mark) from error

    def fraction(self, node: Any) -> Any:
        """A number with a point; base 60 is a text here too."""
        if ":" in node.value:
            return node.value
        value = self.construct_yaml_float(node)
        if not math.isfinite(value):
            said = f"Kubernetes has no number {node.value[:40]}: put quotes around it"
            raise yaml.constructor.ConstructorError(None, None, said, node.start_mark)
        return value

    merged = 0
    """Pairs that merge keys have copied."""

    def flatten_mapping(self, node: Any) -> None:
        """What `<<` names is copied into each map that names it, so few lines can be a map without end."""
        named = [
            (key, part)
            for key, value in node.value
            if key.tag == _TAG + "merge"
            for part in (value.value if isinstance(value, yaml.SequenceNode) else [value])
            if isinstance(part, yaml.MappingNode)
        ]
        for key, part in named:
            self.flatten_mapping(part)
            self.merged += len(part.value)
            if self.merged > VALUES:
                said = f"merge keys (<<) copy more than {VALUES} values: write what you need there"
                raise yaml.constructor.ConstructorError(None, None, said, key.start_mark)
        super().flatten_mapping(node)

    yaml_constructors = {  # noqa: RUF012 - as above
        **yaml.SafeLoader.yaml_constructors,
        **dict.fromkeys(_NOT_THERE, refuse),
        _TAG + "int": number,
        _TAG + "float": fraction,
    }


class _Loader(_Values, yaml.SafeLoader):
    """All of it in Python, whose recursion ends with an error. What it refuses is refused, with its words."""


def _quick() -> Any:
    """A loader whose scanner and parser are C; None where PyYAML has none.

    Its composer is Python's: that in C recurses until the process dies.
    """
    if not yaml.__with_libyaml__:
        return None

    class Quick(_Values, yaml.composer.Composer, yaml.CSafeLoader):
        def __init__(self, text: str) -> None:
            yaml.CSafeLoader.__init__(self, text)
            yaml.composer.Composer.__init__(self)

    return Quick


_QUICK = _quick()


def documents(text: str) -> Iterator[Any]:
    """Every document of a text. Raises yaml.YAMLError, with the line where it is known."""
    if line := _too_deep(text):
        raise yaml.YAMLError(f"line {line} opens more than {_OPEN} lists or maps in each other: write fewer")
    if (found := _quickly(text)) is not None:
        yield from found
        return
    try:
        yield from yaml.load_all(text, Loader=_Loader)
    except RecursionError as error:
        raise yaml.YAMLError(f"it has more than {LEVELS} lists or maps in each other: write fewer") from error
    except _LET_THROUGH as error:
        raise yaml.YAMLError(f"a value is none: {error}") from error


def _quickly(text: str) -> list[Any] | None:
    """The documents; None where the loader in Python has to say what they are, or what is wrong with them."""
    if _QUICK is None or _UNLIKE.search(text):
        return None
    try:
        return list(yaml.load_all(text, Loader=_QUICK))
    except (yaml.YAMLError, RecursionError, *_LET_THROUGH):
        return None


def document(text: str) -> Any:
    """The only document of a text, no larger and no deeper than an object; None for an empty text. Raises yaml.YAMLError."""
    found = list(islice(documents(text), 2))
    if len(found) > 1:
        raise yaml.YAMLError("it has several documents, and a single document is read: take the others out")
    value = found[0] if found else None
    if larger(value, VALUES):
        raise yaml.YAMLError(f"it has more than {VALUES} values: take out aliases (*name)")
    if deeper(value, LEVELS):
        raise yaml.YAMLError(f"it has more than {LEVELS} lists or maps in each other: write fewer")
    return value


def plain(text: str) -> str:
    """A text as it stands in YAML: with quotes only where YAML would read something else without."""
    try:
        same = text not in _BOOLS and list(documents(text)) == [text]
    except yaml.YAMLError:
        same = False
    return text if same else json.dumps(text)


_BOOLS = ("y", "n", "Y", "N")
"""What readers of YAML 1.1 take for true and false, and PyYAML does not."""


def _too_deep(text: str) -> int:
    """The line at which too many brackets stand open, 0 when none: the parser would take minutes for it."""
    depth, line = 0, 1
    for found in re.finditer(r"[\[\]{}\n]", text):
        mark = found.group()
        if mark == "\n":
            line += 1
            depth = 0 if text.startswith("---", found.end()) else depth
        else:
            depth = depth + 1 if mark in "[{" else max(0, depth - 1)
        if depth > _OPEN:
            return line
    return 0
