"""Read the descriptions of fields from the docstrings below the fields. The module is used only to generate the CRDs."""

import ast
import inspect
import sys
from functools import cache


@cache
def attribute_docs(cls: type) -> dict[str, str]:
    """Return the docstring below each attribute of a class and its base classes, by attribute name."""
    out: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if one := _classes(base.__module__).get(base.__name__):
            out |= _texts(one)
    return out


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    if not module.startswith(f"{__package__}."):
        return {}
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _texts(cls: ast.ClassDef) -> dict[str, str]:
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in zip(cls.body, cls.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
