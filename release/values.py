"""Parse a values.yaml with comments in the format of helm-docs, and replace values and comments in the file."""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from ome_operator.errors import UserError

Path = tuple[str, ...]
_WIDTH = 140
_KINDS = {"str": "string", "int": "int", "float": "float", "bool": "bool", "null": "string", "seq": "list", "map": "object"}


@dataclass(frozen=True)
class Value:
    """One value of a chart: a row in the table of the chart's page."""

    path: Path
    kind: str
    """Type in helm-docs' terms: string, int, float, bool, list, object."""
    default: str
    """Default value as JSON."""
    text: str
    """The comment above the value as one line; "" if there is none."""

    @property
    def key(self) -> str:
        """Key of the value in the syntax of `--set`."""
        return ".".join(self.path)


def values(text: str) -> list[Value]:
    """Return every leaf value, and every block that has its own comment, in the order of the file."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return list(_values(root, (), text.splitlines())) if root else []


def replace_values(text: str, wanted: Mapping[Path, Any]) -> str:
    """Return the text with the values in `wanted` at their paths. Everything else, including comments, stays unchanged."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    places: list[tuple[int, int, str]] = []
    for path, value in wanted.items():
        node = root
        for part in path:
            node = next((below for name, below in _pairs(node) if name == part), None) if node else None
        if node is None:
            raise UserError(f"The chart's values.yaml has no {'.'.join(path)}.")
        places.append((node.start_mark.index, node.end_mark.index, json.dumps(value)))
    for start, end, value in sorted(places, reverse=True):
        text = text[:start] + value + text[end:]
    return text


def commented(text: str, wanted: Mapping[Path, str]) -> str:
    """Return the text with the descriptions in `wanted` above the values at their paths. Everything else stays unchanged."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    lines = text.splitlines()
    for path, line in sorted(_lines(root, ()) if root else (), key=lambda found: found[1], reverse=True):
        if path in wanted:
            indent = " " * (len(lines[line]) - len(lines[line].lstrip()))
            said = textwrap.wrap(
                f"-- {wanted[path]}",
                width=_WIDTH,
                initial_indent=f"{indent}# ",
                subsequent_indent=f"{indent}# ",
                break_long_words=False,
                break_on_hyphens=False,
            )
            lines[_begin(lines, line) : line] = said
    return "\n".join(lines) + "\n"


def _lines(node: yaml.Node, path: Path) -> Iterator[tuple[Path, int]]:
    """Yield every path with the line of its key."""
    for name, below, line in _children(node):
        yield (*path, name), line
        yield from _lines(below, (*path, name))


def _begin(lines: list[str], line: int) -> int:
    """Return the line number at which the description above a key begins; the line of the key if there is no description."""
    above = line
    while above and re.match(r"\s*#", lines[above - 1]):
        above -= 1
        if re.match(r"\s*# -- ", lines[above]):
            return above
    return line


def _values(node: yaml.Node, path: Path, lines: list[str]) -> Iterator[Value]:
    for name, below, line in _children(node):
        said, here = _comment(lines, line), (*path, name)
        if said or not _is_block(below):
            kind = _KINDS[below.tag.rpartition(":")[2]]
            yield Value(here, kind, json.dumps(_plain(below)), said)
        else:
            yield from _values(below, here, lines)


def _plain(node: yaml.Node) -> object:
    loader = yaml.SafeLoader("")
    return loader.construct_document(node)


def _is_block(node: yaml.Node) -> bool:
    """Return whether a node is a block map with values below it, not `{}`."""
    return isinstance(node, yaml.MappingNode) and not node.flow_style


def _pairs(node: yaml.Node) -> Iterator[tuple[str, yaml.Node]]:
    for name, below, _ in _children(node):
        yield name, below


def _children(node: yaml.Node) -> Iterator[tuple[str, yaml.Node, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, below in node.value:
            yield str(key.value), below, key.start_mark.line


def _comment(lines: list[str], line: int) -> str:
    """Return the description above a line. As in helm-docs, it consists of the lines that begin with `# -- ` and the
    comment lines that follow.
    """
    above: list[str] = []
    for text in reversed(lines[:line]):
        found = re.match(r"\s*# ?(.*)", text)
        if found is None:
            return ""
        above.insert(0, found[1].strip())
        if above[0].startswith("-- "):
            return " ".join([above[0].removeprefix("-- "), *above[1:]])
    return ""
