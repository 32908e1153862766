"""Tests that the drawings of exceptions in ome_operator/errors.py and kube/errors.py have every exception class below its
base.
"""

import ast
import builtins
import re
from typing import NamedTuple

from ome_operator import errors
from ome_operator.kube import errors as kube
from tests.support.parts import ROOT

BUILT_IN = {name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, BaseException)}
LINE = re.compile(r"(?P<lead>(?:│   |    )*)[├└]── (?P<name>\w+) +(?P<words>.+)")


class Drawn(NamedTuple):
    """A line of a drawing of exception classes."""

    parent: str
    words: str


def drawing(text: str | None) -> dict[str, Drawn]:
    """Return the line of every class in a drawing by the class's name, without the root, which is the line above the first
    class.
    """
    assert text is not None
    found: dict[str, Drawn] = {}
    above: list[str] = []
    before = ""
    for line in text.splitlines():
        if match := LINE.fullmatch(line):
            depth = len(match["lead"]) // 4
            above = above or [before.split()[0]]
            above[depth + 1 :] = [match["name"]]
            assert match["name"] not in found, f"{match['name']} is drawn twice"
            found[match["name"]] = Drawn(above[depth], match["words"])
        before = line
    return found


def exceptions(files: dict[str, str]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return the file and the names of the bases of each exception class. `files` contains the texts of files by their
    names.
    """
    classes = [
        (file, node.name, tuple(ast.unparse(base).rpartition(".")[2] for base in node.bases))
        for file, text in files.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    ]
    known, found = set(BUILT_IN), dict[str, tuple[str, tuple[str, ...]]]()
    while more := [each for each in classes if each[1] not in found and any(_raised(base, known) for base in each[2])]:
        for file, name, bases in more:
            assert name not in found, f"{name} is the name of two exception classes: {file} and {found[name][0]}"
            found[name] = (file, bases)
        known |= found.keys()
    return found


def _raised(base: str, known: set[str]) -> bool:
    """Return whether a base is an exception class: one of this project, or, by its name, a built-in one or one of a
    library.
    """
    return base in known or base.endswith(("Error", "Exception"))


def sources() -> dict[str, str]:
    """Return the text of every file of ome_operator and ome_local by its path, which begins with `ome_local/`, or, in
    ome_operator, below the package.
    """
    paths = [path for package in ("ome_operator", "ome_local") for path in (ROOT / package).rglob("*.py")]
    return {str(path.relative_to(ROOT)).removeprefix("ome_operator/"): path.read_text(encoding="utf-8") for path in paths}


def test_exception_diagram_equals_the_class_hierarchy() -> None:
    tree, below = drawing(errors.__doc__), drawing(kube.__doc__)
    code = exceptions(sources())
    assert not tree.keys() & below.keys()
    assert tree.keys() | below.keys() == code.keys(), "the drawing has other classes than the code"
    for name, drawn in {**tree, **below}.items():
        file, bases = code[name]
        assert drawn.parent in bases, f"{name} derives from {', '.join(bases)}, and is drawn below {drawn.parent}"
        assert (file == "kube/errors.py") if name in below else drawn.words.startswith(f"{file}: "), name


def test_only_standalone_programs_have_exceptions_with_another_base() -> None:
    of_pods = {"Unfit", "NoCache", "ChangedError", "BusyError"}
    assert {name for name, drawn in drawing(errors.__doc__).items() if drawn.parent == "Exception"} == {"OmeError", *of_pods}


def test_diagram_levels_are_parsed() -> None:
    text = "Words.\n\nA\n├── B  x.py: b\n│   └── C  x.py: c\n└── D  y.py: d\n"
    assert {name: drawn.parent for name, drawn in drawing(text).items()} == {"B": "A", "C": "B", "D": "A"}


def test_exceptions_are_found_across_files() -> None:
    files = {"a.py": "class B(A): ...\nclass C(lib.SomeError): ...\nclass D: ...", "b.py": "class A(OSError): ..."}
    assert exceptions(files) == {"A": ("b.py", ("OSError",)), "B": ("a.py", ("A",)), "C": ("a.py", ("SomeError",))}
