"""Tests that paths, symbols, packages and tests that the pages name exist."""

import ast
import re
from pathlib import Path

import pytest

from ome_operator.core.observed.objects import Refusal
from ome_operator.core.problem import Problem, ProblemError
from ome_operator.core.reasons import REASONS
from ome_operator.core.rollout.step import RolloutGate
from ome_operator.core.status.conditions import Condition

ROOT = Path(__file__).parents[2]
CALLS = frozenset(each.__name__ for each in (Problem, ProblemError, RolloutGate, Condition, Refusal))
"""Names of the classes whose constructors take a reason as an argument."""


def literals(source: str) -> set[str]:
    """Return the reasons in a module that are written as literal strings."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = [one.value for one in node.keywords if one.arg == "reason"] + (node.args if name in CALLS else [])
        found |= {str(one.value) for one in given if isinstance(one, ast.Constant) and one.value in REASONS}
    return found


def test_core_uses_reasons_only_from_the_records() -> None:
    assert literals('Problem(MODEL_READY, "NoEngine", why)') == literals('step(reason="NoEngine")') == {"NoEngine"}
    core = ROOT / "ome_operator/core"
    standing = {str(file.relative_to(core)): literals(file.read_text()) for file in core.rglob("*.py")}
    assert {file: found for file, found in standing.items() if found} == {}


def test_links_of_pages_target_existing_files() -> None:
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_readme_installs_the_command_before_using_it() -> None:
    text = (ROOT / "README.md").read_text()
    blocks = [(found.start(), found[1]) for found in re.finditer(r"^```sh\n(.*?)^```", text, re.M | re.S)]
    first = min(at for at, block in blocks if re.search(r"^(kubectl )?ome ", block, re.M))
    assert text.index('export PATH="$PWD/.venv/bin:$PATH"') < first
    assert text.index("git clone") < text.index("make demo")


STRICT = ("docs/architecture.md", "docs/decisions.md", "CONTRIBUTING.md")
"""Pages in which everything in backticks that looks like a path has to exist."""
_SUFFIXES = (".py", ".md", ".toml")
_FOLDERS = ("", "ome_operator")
"""Folders to which the paths on those pages are relative."""


def spans(page: str) -> list[str]:
    """Return the code spans of a page, without its code blocks."""
    text = re.sub(r"^ *```.*?^ *```", "", (ROOT / page).read_text(), flags=re.M | re.S)
    return re.findall(r"`([^`\n]+)`", text)


def paths(page: str) -> list[tuple[str, str]]:
    """Return (path, symbol) for each path on a page. The symbol is "" if the page names only a file or folder.

    `ome.io/revision` is a label and `/workers` is a URL: a span whose first part contains a dot, or is empty, names no
    folder of the repository.
    """
    found = []
    for span in spans(page):
        match = re.fullmatch(r"([\w*-][\w.*-]*(?:/[\w.*-]*)*)(?:::?([A-Za-z_][\w.]*))?", span)
        if match is None:
            continue
        path, symbol = match[1], match[2] or ""
        if path.endswith(_SUFFIXES) or ("/" in path and "." not in path.partition("/")[0]):
            found.append((path, symbol))
    return found


def placed(path: str) -> list[Path]:
    """Return the files or folders that a path on a page can mean."""
    return [found for folder in _FOLDERS for found in (ROOT / folder).glob(path.rstrip("/"))]


def defined(file: Path, symbol: str) -> bool:
    """Return whether a module defines a function, class or constant, or `Class.method`."""
    body: list[ast.stmt] = ast.parse(file.read_text()).body
    for name in symbol.split("."):
        node = next((statement for statement in body if name in _names(statement)), None)
        if node is None:
            return False
        body = getattr(node, "body", [])
    return True


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}


def functions_of(file: Path) -> set[str]:
    """Return the names of the tests in a file, including those in classes."""
    tree = ast.parse(file.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("page", STRICT)
def test_paths_in_backticks_exist(page: str) -> None:
    found = paths(page)
    assert len(found) > 20, "paths on the pages must be in backticks"
    assert [path for path, _ in found if not placed(path)] == []


@pytest.mark.parametrize("page", STRICT)
def test_symbols_in_backticks_are_defined_in_their_file(page: str) -> None:
    """Every symbol in backticks is defined in the file that it names. It is written as `path.py:function`,
    `path.py:Class.method`, `path.py:CONSTANT`, or `path.py::test`.
    """
    for path, symbol in paths(page):
        if symbol:
            (file,) = placed(path)
            assert defined(file, symbol) or symbol in functions_of(file), f"{page}: {path} has no {symbol}"


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_architecture_page_names_every_package_and_folder(page: str) -> None:
    """docs/architecture.md names every package of the operator and every folder of the repository, by its path below
    ome_operator or the root.
    """
    operator = ROOT / "ome_operator"
    packages = {str(file.parent.relative_to(operator)) for file in operator.rglob("__init__.py")} - {"."}
    folders = {str(file.parent.relative_to(ROOT)) for file in (ROOT / "ome_local").rglob("__init__.py")}
    folders |= {"bench", "charts", "config", "crds", "docs", "examples", "images", "release", "tests"}
    named = {span.rstrip("/") for span in spans(page)}
    assert sorted((packages | folders) - named) == []


CODE = ("ome_operator", "ome_local", "tests", "bench")
IN_CODE = re.compile(r"\bdecisions(?:\.md,)?\s+(\d+(?:(?:, | and |, and )\d+)*)")
"""Pattern of a reference to decisions in code, such as `(decisions 7)`, `decisions 6 and 12` or `docs/decisions.md, 17`."""
IN_PAGES = re.compile(r"\]\([\w/]*decisions\.md\),\s+(\d+(?:(?:, | and |, and )\d+)*)")
"""Pattern of a reference to decisions on a page, such as `[decisions](decisions.md), 30`."""


def headings() -> set[int]:
    """Return the numbers of the entries in docs/decisions.md."""
    return {int(number) for number in re.findall(r"^## (\d+)\. ", (ROOT / "docs/decisions.md").read_text(), re.M)}


def cited(file: Path) -> set[int]:
    """Return the numbers of the decisions that a module or a page names."""
    found = [said for pattern in (IN_CODE, IN_PAGES) for said in pattern.findall(file.read_text())]
    return {int(number) for said in found for number in re.findall(r"\d+", said)}


def test_every_referenced_decision_has_a_heading() -> None:
    known = headings()
    assert known == set(range(1, max(known) + 1))
    code = [file for folder in CODE for file in (ROOT / folder).rglob("*.py")]
    named = {
        str(file.relative_to(ROOT)): cited(file) - known
        for file in (*code, *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))
    }
    assert {file: numbers for file, numbers in named.items() if numbers} == {}


def test_every_decision_is_referenced_in_the_code() -> None:
    """Every decision is named in the code that implements it, so that whoever edits the code knows the decision."""
    code = [file for folder in ("ome_operator", "ome_local") for file in (ROOT / folder).rglob("*.py")]
    assert headings() - {number for file in code for number in cited(file)} == set()


NO_PAGES = {"NOTES.md", "dist/NOTES.md", "NONE.md"}
"""Pages that a release generates, or that a test expects to be absent."""
_A_PAGE = re.compile(r"(?<![\w/.*<{-])(?:[.]{1,2}/)*((?:[\w.-]+/)*[\w-]+[.]md)\b")
_TEXTS = {"", ".cfg", ".json", ".md", ".py", ".sh", ".toml", ".tpl", ".txt", ".yaml", ".yml"}
_HERE = (
    "bench",
    "charts",
    "config",
    "crds",
    "docs",
    "examples",
    "findings",
    "images",
    "ome_local",
    "ome_operator",
    "release",
    "tests",
)


def test_no_file_references_a_missing_page() -> None:
    """No file of the repository names a page that does not exist. References name a page by its file name, or by the end of
    its path.
    """
    files = [file for file in (*ROOT.glob("*"), *(ROOT / ".github").rglob("*")) if file.is_file()]
    files += [file for folder in _HERE for file in (ROOT / folder).rglob("*") if file.is_file()]
    pages = [f"/{file.relative_to(ROOT)}" for file in files if file.suffix == ".md"]
    unknown = {
        (str(file.relative_to(ROOT)), name)
        for file in files
        if file.suffix in _TEXTS and "__pycache__" not in file.parts
        for name in _A_PAGE.findall(file.read_text(errors="replace"))
        if name not in NO_PAGES and not any(page.endswith(f"/{name}") for page in pages)
    }
    assert unknown == set()


def test_every_decision_names_an_existing_test() -> None:
    _, *entries = re.split(r"^## ", (ROOT / "docs/decisions.md").read_text(), flags=re.M)
    for entry in entries:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", entry)
        assert named, entry.partition("\n")[0]
        assert [(path, name) for path, name in named if name not in functions_of(ROOT / path)] == []


def test_the_version_of_ome_that_was_compared_is_named_in_one_place() -> None:
    """The version of OME with which this project was compared is named in one place, and all other pages link to it. Newer
    versions of OME exist and were not compared. Measurements name the version that was measured.
    """
    pages = (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    named = {page.name for page in pages if re.search(r"\bOME v\d", page.read_text())}
    assert named == {"migrate.md", "performance.md"}
    first = (ROOT / "docs/migrate.md").read_text().split("\n\n")[1]
    assert "was compared with that version" in first and "they were not compared" in first
    assert "the version of OME to which this refers](docs/migrate.md)" in (ROOT / "README.md").read_text()
