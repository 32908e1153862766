"""Composes the cases of `ome lint` from a base and an overlay that states only how the case differs from the base.

An overlay is a YAML map. `base` names a file of tests/lint/base. Every other key is the kind of a document, and its value is
a map from field paths (`spec.engineConfig.runner`) to values, which are merged into the document of that kind:

* A map is merged into a map key by key, as in a JSON merge patch (RFC 7386): null removes a key.
* A map is merged into a list entry by entry. A key names an entry: the text of a string, or the `name` of a map. The value
  replaces a string (a list replaces it by several strings), and is merged into a map; null removes the entry. The key
  `after ENTRY` inserts one or several entries behind an entry, and `append` adds entries at the end of the list. A new name
  appends a map with this name.
* Every other value replaces the value of the base.
* A kind that the base does not have is appended as a new document, and null removes the document of a kind.
"""

import copy
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ome_operator.util.kubeyaml import documents
from tests.support.parts import ROOT

LINT = ROOT / "tests/lint"
BASES = LINT / "base"
AFTER = "after "


class _Indented(yaml.SafeDumper):
    """Indents the entries of lists, as the files of this repository do, and writes no aliases."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def merge_overlay(base: Any, overlay: Any) -> Any:
    """Merge `overlay` into a copy of `base`. Raises KeyError if the overlay names an entry that `base` does not have."""
    if not isinstance(overlay, dict):
        return overlay
    if isinstance(base, list):
        return _merged_list(base, overlay)
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in overlay.items():
        if value is None:
            del result[key]
        else:
            result[key] = merge_overlay(result.get(key), value)
    return result


def _merged_list(base: list[Any], overlay: dict[str, Any]) -> list[Any]:
    result = list(base)
    maps = bool(base) and isinstance(base[0], dict)
    for key, value in overlay.items():
        names = [entry["name"] if isinstance(entry, dict) else entry for entry in result]
        entries = value if isinstance(value, list) else [value]
        if key == "append" or (maps and value is not None and key not in names and not key.startswith(AFTER)):
            result += entries if key == "append" else [{"name": key, **value}]
        elif key.startswith(AFTER):
            at = _index(names, key.removeprefix(AFTER)) + 1
            result[at:at] = entries
        else:
            at = _index(names, key)
            result[at : at + 1] = [] if value is None else [merge_overlay(result[at], value)] if maps else entries
    return result


def _index(names: list[Any], name: str) -> int:
    if name not in names:
        raise KeyError(f"the list of the base has no entry {name}")
    return names.index(name)


def compose(path: Path) -> list[dict[str, Any]]:
    """Return the documents of a case; the documents of a file that is not an overlay are returned unchanged."""
    written = list(documents(path.read_text(encoding="utf-8")))
    if "base" not in written[0]:
        return written
    (overlay,) = written
    composed = {body["kind"]: body for body in copy.deepcopy(_base(overlay.pop("base")))}
    for kind, fields in overlay.items():
        if fields is None:
            del composed[kind]
            continue
        body = composed.get(kind, {"kind": kind})
        for field, value in fields.items():
            for key in reversed(field.split(".")):
                value = {key: value}
            body = merge_overlay(body, value)
        composed[kind] = body
    return list(composed.values())


@cache
def _base(name: str) -> list[dict[str, Any]]:
    return list(documents((BASES / f"{name}.yaml").read_text(encoding="utf-8")))


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="lint-")


@cache
def composed_file(path: Path) -> Path:
    """Return a file with the documents of a case, for commands that read files. It is removed when the process ends."""
    file = Path(_folder().name) / path.relative_to(LINT)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.dump_all(compose(path), Dumper=_Indented, sort_keys=False, width=1000), encoding="utf-8")
    return file
