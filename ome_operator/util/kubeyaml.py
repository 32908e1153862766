"""A YAML parser for the subset of YAML that Kubernetes accepts: no dates, no sets, no numbers with colons, and a limited
depth; and a dumper that writes no aliases.
"""

import json
import math
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import yaml

from ome_operator.util.json_limits import exceeds_count, exceeds_depth

LEVELS = 100
"""Maximum nesting of lists and maps. Objects of Kubernetes have far fewer levels."""
VALUES = 500_000
"""Maximum number of values in an object. An API server accepts less than two megabytes, but aliases can repeat the same
part many times."""
_OPEN = 200
"""Maximum number of brackets that are open at the same position in a text. Brackets inside strings are counted, too."""
_UNLIKE = re.compile(
    r"[^\n\r -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"  # tabs and other control characters
    r"|[!?]|[|>][-+0-9]*#"  # tags, key indicators, comments directly after a block indicator
)
"""Pattern of characters and sequences that the two parsers of PyYAML (in C and in Python) may interpret differently."""
_LET_THROUGH = (ValueError, TypeError, AttributeError, LookupError)
"""Exceptions that PyYAML raises for an invalid key or for a value that does not fit its tag. PyYAML does not convert them
to its own exceptions."""
_TAG = "tag:yaml.org,2002:"
_UNSUPPORTED = tuple(_TAG + name for name in ("timestamp", "binary", "set", "omap", "pairs"))
_REMOVED = frozenset(_TAG + name for name in ("timestamp", "value"))


class PlainDumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc] # the base class depends on whether libyaml is available
    """A YAML dumper that writes no anchors and aliases: a part that occurs several times is written several times."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


class RepeatedKey(NamedTuple):
    """A key that a map contains twice. YAML forbids it, but most parsers keep the last value without a message."""

    key: str
    first: int
    """Line of the first value, which is lost. The first line of the text has the number 1."""
    last: int
    """Line of the last value. Only this value is used."""


class _Values(yaml.constructor.SafeConstructor, yaml.resolver.Resolver):
    """Common base of all loaders in this module. It defines the meaning of strings, numbers and tags."""

    repeats: tuple[RepeatedKey, ...] = ()
    """The keys that maps of the present document contain twice."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as in the parent class
        first: [(tag, form) for tag, form in resolvers if tag not in _REMOVED]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def refuse(self, node: yaml.Node) -> Any:
        """Raise an error for a tag that Kubernetes does not support."""
        tag = node.tag.rpartition(":")[2]
        problem = f"Kubernetes does not support !!{tag}: write a string in quotes, a list or a map instead"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)

    def number(self, node: Any) -> Any:
        """Return a whole number. A number in base 60 (`12:30`) is a string, as in Kubernetes."""
        if ":" in node.value:
            return node.value
        try:
            return self.construct_yaml_int(node)
        except ValueError as error:
            problem = (
                f"a number of {len(node.value)} characters is too long: put quotes around it, or write a shorter number"
            )
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error

    def fraction(self, node: Any) -> Any:
        """Return a number with a decimal point. A number in base 60 is a string."""
        if ":" in node.value:
            return node.value
        value = self.construct_yaml_float(node)
        if not math.isfinite(value):
            problem = f"Kubernetes does not support the number {node.value[:40]}: put quotes around it"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return value

    merged = 0
    """Number of pairs that merge keys have copied."""

    def flatten_mapping(self, node: Any) -> None:
        """Copy the pairs of the maps to which `<<` refers. Their number is limited, because a few lines that refer to
        each other can form an unlimited map. Record keys that the map contains twice.
        """
        self._record_repeats(node)
        references = [
            (key, part)
            for key, value in node.value
            if key.tag == _TAG + "merge"
            for part in (value.value if isinstance(value, yaml.SequenceNode) else [value])
            if isinstance(part, yaml.MappingNode)
        ]
        for key, part in references:
            self.flatten_mapping(part)
            self.merged += len(part.value)
            if self.merged > VALUES:
                problem = f"merge keys (<<) copy more than {VALUES} values: write the values without merge keys"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
        super().flatten_mapping(node)

    def _record_repeats(self, node: Any) -> None:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _TAG + "merge":
                line = key.start_mark.line + 1
                if key.value in lines:
                    found = RepeatedKey(key.value, lines[key.value], line)
                    self.repeats = (*self.repeats, *([found] if found not in self.repeats else []))
                lines[key.value] = line

    yaml_constructors = {  # noqa: RUF012 - as above
        **yaml.SafeLoader.yaml_constructors,
        **dict.fromkeys(_UNSUPPORTED, refuse),
        _TAG + "int": number,
        _TAG + "float": fraction,
    }


class _Loader(_Values, yaml.SafeLoader):
    """A loader that is written only in Python, so that too deep recursion raises an exception. Its errors are reported to
    the user.
    """


def _quick() -> Any:
    """Return a class of loaders whose scanner and parser are written in C; None if PyYAML was installed without them.

    The composer of this loader is written in Python. Recursion in the composer in C has no limit, and would crash the
    process.
    """
    if not yaml.__with_libyaml__:
        return None

    class Quick(_Values, yaml.composer.Composer, yaml.CSafeLoader):
        def __init__(self, text: str) -> None:
            yaml.CSafeLoader.__init__(self, text)
            yaml.composer.Composer.__init__(self)

    return Quick


_QUICK = _quick()


class Document(NamedTuple):
    """A YAML document of a text."""

    value: Any
    repeats: tuple[RepeatedKey, ...]
    """The keys that maps of the document contain twice, in the order of the text."""


def documents(text: str) -> Iterator[Any]:
    """Yield every document in a text. Raises yaml.YAMLError, which contains the line if it is known."""
    return (found.value for found in documents_with_repeats(text))


def documents_with_repeats(text: str) -> Iterator[Document]:
    """Yield every document in a text, with the keys that are given twice. Raises yaml.YAMLError like `documents`."""
    if line := _too_deep(text):
        raise yaml.YAMLError(f"line {line} opens more than {_OPEN} nested lists or maps: reduce the nesting")
    if (fast_documents := _quickly(text)) is not None:
        yield from fast_documents
        return
    try:
        yield from _loaded(_Loader(text))
    except RecursionError as error:
        raise yaml.YAMLError(f"it has more than {LEVELS} levels of nested lists or maps: reduce the nesting") from error
    except _LET_THROUGH as error:
        raise yaml.YAMLError(f"a value is invalid: {error}") from error


def _loaded(loader: Any) -> Iterator[Document]:
    try:
        while loader.check_data():
            value, repeats = loader.get_data(), loader.repeats
            loader.repeats = ()
            yield Document(value, tuple(sorted(repeats, key=lambda repeat: repeat.last)))
    finally:
        loader.dispose()


def _quickly(text: str) -> list[Document] | None:
    """Return the documents in a text, parsed by the loader `_quick`. Return None if the loader that is written only in
    Python (`_Loader`) has to parse the text or report an error.
    """
    if _QUICK is None or _UNLIKE.search(text):
        return None
    try:
        return list(_loaded(_QUICK(text)))
    except (yaml.YAMLError, RecursionError, *_LET_THROUGH):
        return None


def document(text: str) -> Any:
    """Return the only document in a text; None for an empty text. Raises yaml.YAMLError for invalid text, and for a
    document beyond the limits of size and depth.
    """
    first_two = list(islice(documents(text), 2))
    if len(first_two) > 1:
        raise yaml.YAMLError("it contains several documents, but only one is supported: remove the others")
    value = first_two[0] if first_two else None
    if exceeds_count(value, VALUES):
        raise yaml.YAMLError(f"it has more than {VALUES} values: remove aliases (*name)")
    if exceeds_depth(value, LEVELS):
        raise yaml.YAMLError(f"it has more than {LEVELS} levels of nested lists or maps: reduce the nesting")
    return value


def plain_scalar(text: str) -> str:
    """Return a string in YAML notation. It has quotes only if YAML would otherwise read another value."""
    try:
        same = text not in _BOOLS and list(documents(text)) == [text]
    except yaml.YAMLError:
        same = False
    return text if same else json.dumps(text)


_BOOLS = ("y", "n", "Y", "N")
"""Words that parsers of YAML 1.1 read as true and false, although PyYAML reads them as strings."""


def _too_deep(text: str) -> int:
    """Return the number of the first line at which too many brackets are open; 0 if there is no such line. The parser would
    need minutes for a text with so many open brackets.
    """
    depth, line = 0, 1
    for match in re.finditer(r"[\[\]{}\n]", text):
        mark = match.group()
        if mark == "\n":
            line += 1
            depth = 0 if text.startswith("---", match.end()) else depth
        else:
            depth = depth + 1 if mark in "[{" else max(0, depth - 1)
        if depth > _OPEN:
            return line
    return 0
