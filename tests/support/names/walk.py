"""Helpers that enumerate names in Python packages: by importing every module, by its syntax tree, and by types."""

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import ModuleType
from typing import Any, get_args, get_type_hints

PACKAGES = ("ome_operator", "ome_local")
NOT_IMPORTED = {"ome_operator.benchmark_pod.inside_genai"}
"""Modules that can be imported only in an image, because only the image has the packages that they need."""


@cache
def modules(package: str) -> tuple[ModuleType, ...]:
    """Import every module of a package, at any depth, and return all of them."""
    root = importlib.import_module(package)
    if not hasattr(root, "__path__"):
        return (root,)
    names = [found.name for found in pkgutil.walk_packages(root.__path__, f"{package}.")]
    return (root, *(importlib.import_module(name) for name in names if name not in NOT_IMPORTED))


@cache
def tree(module: ModuleType) -> ast.Module:
    """Return the syntax tree of a module, without its docstrings."""
    found = ast.parse(inspect.getsource(module))
    for node in ast.walk(found):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [part for part in body if not _is_text(part)] or [ast.Pass()]  # type: ignore[attr-defined]
    return found


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def nodes(*packages: str) -> Iterator[tuple[ModuleType, ast.AST]]:
    """Yield each node of the syntax trees of all modules of these packages, with its module."""
    for package in packages:
        for module in modules(package):
            for node in ast.walk(tree(module)):
                yield module, node


def texts(*packages: str) -> Iterator[str]:
    """Yield every text of these packages: the constants in their code, and the texts that are assembled during their
    import.
    """
    for _, node in nodes(*packages):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    for package in packages:
        for module in modules(package):
            yield from texts_of(vars(module))


def texts_of(value: Any, depth: int = 3) -> Iterator[str]:
    """Yield the texts in a value, down to `depth` levels of collections."""
    if isinstance(value, str):
        yield str(value)
    elif depth and isinstance(value, Mapping):
        for key, inner in value.items():
            if not str(key).startswith("__"):
                yield from texts_of(key, depth - 1)
                yield from texts_of(inner, depth - 1)
    elif depth and isinstance(value, tuple | list | set | frozenset):
        for inner in value:
            yield from texts_of(inner, depth - 1)


def json_keys(*packages: str) -> Iterator[str]:
    """Yield the keys of dicts that the code writes (`{"rank": ...}`) or reads (`said["rank"]`, `said.get("rank")`)."""
    for _, node in nodes(*packages):
        found: list[ast.expr | None] = []
        if isinstance(node, ast.Dict):
            found = node.keys
        elif isinstance(node, ast.Subscript):
            found = [node.slice]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            found = list(node.args[:1])
        yield from (key.value for key in found if isinstance(key, ast.Constant) and isinstance(key.value, str))


def field_paths(type_: Any, at: str, camel: Any = str, inside: tuple[Any, ...] = ()) -> Iterator[str]:
    """Yield the paths of all fields of a record type (a NamedTuple or a dataclass), `[]` for items and `{}` for values.

    `camel` changes the names of fields, as the command line does. A path ends at a pydantic model, whose fields are listed
    with those of the CRDs.
    """
    if isinstance(type_, type) and (hasattr(type_, "_fields") or is_dataclass(type_)):
        if type_ in inside:
            return
        hints = get_type_hints(type_)
        names = [field.name for field in fields(type_)] if is_dataclass(type_) else type_._fields
        for name in names:
            path = f"{at}.{camel(name)}"
            yield path
            yield from field_paths(hints[name], path, camel, (*inside, type_))
        return
    origin, parts = getattr(type_, "__origin__", None), get_args(type_)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        yield from field_paths(parts[1], f"{at}{{}}", camel, inside)
    elif origin in (tuple, list, set, frozenset):
        for part in dict.fromkeys(part for part in parts if part is not ...):
            yield from field_paths(part, f"{at}[]", camel, inside)
    else:
        for part in parts:
            yield from field_paths(part, at, camel, inside)
