"""Generates docs/api.md from the parsed kinds and from the list of fields that have no effect."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from ome_operator.api import Inline, Spec, schema
from ome_operator.api.kinds import KINDS, Kind
from ome_operator.core.resolve.no_effect import ANNOTATIONS, FIELDS, READ, READ_ON_PODS, NoEffectUnless, ReadKeysOnly, Tree
from tests.support.fields import bare

HEAD = """# API reference

This page lists every field of every kind, with the description that `kubectl explain` shows. Fields in bold are required.
The last chapters list the fields that are accepted but have no effect. If an object sets such a field, its condition
`Advice` names the field.

`pytest tests/golden --update-golden` generates this page from the Python models.
"""
OPEN_POD = "*any other field*"


def page() -> str:
    """Return the text of docs/api.md."""
    parts = [HEAD, *_contents(), *(_kind(kind) for kind in KINDS)]
    parts += ["\n# Parts\n", *(_part(item) for item in sorted(_classes(), key=lambda item: item.__name__))]
    return "".join([*parts, *_without_effect(), *_annotations()])


def _contents() -> Iterator[str]:
    names = [f"[{_title(kind)}](#{_anchor(_title(kind))})" for kind in KINDS]
    yield f"\nKinds: {', '.join(names)}.\n"


def _title(kind: Kind) -> str:
    return kind.kind if kind.group == "ome.io" else f"{kind.kind} of {kind.group}"


def _kind(kind: Kind) -> str:
    where = "namespaced" if kind.namespaced else "cluster-scoped"
    short = f"; short name: `{', '.join(kind.short)}`" if kind.short else ""
    said = f"\n## {_title(kind)}\n\n`{kind.group}/{kind.version}`, {where}{short}. {_words(kind.spec)}\n"
    return f"{said}\n### spec of {_title(kind)}\n{_table(kind.spec)}\n### status of {_title(kind)}\n{_table(kind.status)}"


def _part(part: type[Spec]) -> str:
    return f"\n## {part.__name__}\n\n{_words(part)}\n{_table(part)}"


def _table(part: type[Spec]) -> str:
    known: Mapping[str, Any] = schema.structural(part).get("properties") or {}
    rows = [_row(field, known[str(field.alias)]) for field in part.model_fields.values()]
    if issubclass(part, Inline):
        container = part.__name__ == "PredictorModel"
        rows.append(f"| {OPEN_POD} | | Fields of a core/v1 {'Container' if container else 'PodSpec'}. |\n")
    return "\n| field | type | description |\n|---|---|---|\n" + "".join(rows)


def _row(field: Any, node: Mapping[str, Any]) -> str:
    name = f"**{field.alias}**" if field.is_required() else str(field.alias)
    return f"| {name} | {_type(field.annotation, node)} | {_cell(node.get('description', ''))} |\n"


def _type(annotation: Any, node: Mapping[str, Any]) -> str:
    kind = bare(annotation)
    if isinstance(kind, type) and issubclass(kind, Spec):
        return f"[{kind.__name__}](#{_anchor(kind.__name__)})"
    inside = [bare(item) for item in get_args(kind)]
    if node.get("type") == "array":
        return f"list of {_type(inside[0], node['items'])}"
    if "additionalProperties" in node:
        return f"map of {_type(inside[-1], node['additionalProperties'])}"
    if "enum" in node:
        return ", ".join(f"`{item}`" for item in node["enum"] if item)
    if node.get("x-kubernetes-int-or-string"):
        return "integer or string"
    words = {"string": "string", "integer": "integer", "boolean": "boolean", "object": "object (kept as written)"}
    return words.get(node.get("type", ""), "number")


def _classes() -> set[type[Spec]]:
    """Return the classes that the specs and statuses of all kinds contain."""
    found: set[type[Spec]] = set()
    todo = [item for kind in KINDS for item in (kind.spec, kind.status)]
    top = {*todo}
    while todo:
        for field in todo.pop().model_fields.values():
            for item in _inside(field.annotation):
                if item not in found | top:
                    found.add(item)
                    todo.append(item)
    return found


def _inside(annotation: Any) -> Iterator[type[Spec]]:
    kind = bare(annotation)
    if isinstance(kind, type) and issubclass(kind, Spec):
        yield kind
    for item in get_args(kind):
        yield from _inside(item)


def _words(part: type[Spec]) -> str:
    return _cell(part.__doc__ or "")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-").replace(".", "")


# --- fields without effect ------------------------------------------------------------------------------------------------


def _without_effect() -> Iterator[str]:
    yield "\n# Fields without effect\n"
    told: set[int] = set()
    for tree in FIELDS.values():
        if id(tree) in told:
            continue
        told.add(id(tree))
        alike = " and ".join(name for name, other in FIELDS.items() if other is tree)
        yield f"\n## Without effect: {alike}\n\n| field | |\n|---|---|\n"
        yield from (f"| `{path}` | {_cell(hint)} |\n" for path, hint in _rows(tree))


def _rows(tree: Tree, at: str = "spec") -> Iterator[tuple[str, str]]:
    for name, below in tree.items():
        path = f"{at}.{name}"
        if isinstance(below, Mapping):
            yield from _rows(below, path)
        elif isinstance(below, NoEffectUnless):
            yield f"{path} other than {_shown(below.value)}", below.hint
        elif isinstance(below, ReadKeysOnly):
            yield f"{path} other than {', '.join(sorted(below.keys))}", below.hint
        else:
            yield path, below


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _annotations() -> Iterator[str]:
    yield "\n# Annotations\n\nThe operator reads these annotations:\n\n| annotation | on |\n|---|---|\n"
    where: dict[str, list[str]] = {}
    for kind, names in READ.items():
        for name in names:
            where.setdefault(name, []).append(kind)
    for component, names in READ_ON_PODS.items():
        for name in names:
            where.setdefault(name, []).append(f"`annotations` of {component}")
    yield from (f"| `{name}` | {', '.join(on)} |\n" for name, on in sorted(where.items()))
    yield "\nThese annotations of OME have no effect on objects that are not listed above. "
    yield "The second column states what to do instead:\n\n"
    yield "| annotation | |\n|---|---|\n"
    yield from (f"| `{name}` | {hint} |\n" for name, hint in sorted(ANNOTATIONS.items()))
