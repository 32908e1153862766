"""Tests that every attribute of an object exists after its constructor, so that readers need not know which methods ran
before.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.parts import ROOT

EXAMPLE = """
class Late:
    known: int

    def __init__(self):
        self.made = 1

    async def run(self):
        self.made, self.known = 2, 3
        async with opened() as self.late:
            self.later: int = 4
"""


def assigned(method: ast.AST) -> set[str]:
    """Return the attributes of `self` that a method assigns."""
    return {
        node.attr
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }


def late(source: str) -> Iterator[str]:
    """Yield the attributes that a class neither declares nor assigns in its constructor, but assigns in another method."""
    for found in ast.walk(ast.parse(source)):
        if not isinstance(found, ast.ClassDef):
            continue
        methods = [each for each in found.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        born = {name for each in methods if each.name == "__init__" for name in assigned(each)}
        born |= {node.id for each in found.body if isinstance(each, ast.Assign | ast.AnnAssign) for node in names(each)}
        for name in sorted({name for each in methods for name in assigned(each)} - born):
            yield f"{found.name}.{name}"


def names(statement: ast.Assign | ast.AnnAssign) -> list[ast.Name]:
    """Return the names that a statement in the body of a class defines."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return [each for each in targets if isinstance(each, ast.Name)]


def test_attribute_created_outside_the_constructor_is_found() -> None:
    assert list(late(EXAMPLE)) == ["Late.late", "Late.later"]


@pytest.mark.parametrize("package", ["ome_operator", "ome_local"])
def test_attributes_appear_in_constructors(package: str) -> None:
    files: list[Path] = sorted((ROOT / package).rglob("*.py"))
    assert [f"{file.relative_to(ROOT)}: {each}" for file in files for each in late(file.read_text("utf-8"))] == []
