"""Tests of the first page and of the pages to which it links: the first screen shows a command, versions are current, and
claims have sources.
"""

import re
from pathlib import Path

import pytest

from ome_local.binaries.versions import KUBERNETES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
COMPARISON = (ROOT / "docs/comparison.md").read_text()
SCREEN = 24
"""Number of lines that a terminal shows; a browser shows more."""
PAGES = ("README.md", "docs/production.md", "docs/performance.md", "docs/comparison.md")
NOTHING = ("–", "not measured")
"""Contents of cells that make no claim."""


def section(text: str, heading: str) -> str:
    """Return the text below a heading."""
    return re.split(r"^## ", re.split(rf"^## {re.escape(heading)}$", text, flags=re.M)[1], flags=re.M)[0]


def table(text: str) -> list[list[str]]:
    """Return the cells of the first table with its header, without bold markup."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip().replace("**", "") for cell in line.strip("|").split(" | ")] for line in lines if "---" not in line]


def test_the_first_command_is_on_the_first_screen() -> None:
    first = README.splitlines()[:SCREEN]
    assert "make demo" in first, "new users have to find it without scrolling"
    assert not [line for line in first if line.startswith(("![", "|"))], "pictures and tables have to come later"


def test_every_statement_about_other_projects_has_a_source() -> None:
    head, *rows = table(section(README, "Compared with other projects"))
    assert head[1:] == ["this project", "OME", "KServe", "llm-d", "NVIDIA Dynamo"]
    for number, project in enumerate(head[2:], start=2):
        sources = {row[0]: row for row in table(section(COMPARISON, project))[1:]}
        told = {row[0] for row in rows if row[number] not in NOTHING}
        assert sources.keys() == told, project
        assert all(re.search(r"\]\((https://|\w+\.md)", row[2]) for row in sources.values()), project


def test_comparison_table_has_a_date() -> None:
    (read,) = re.findall(r"read on (\d{4}-\d\d-\d\d)", COMPARISON)
    assert f"Read on {read}" in section(README, "Compared with other projects")


def test_documented_versions_are_those_that_are_tested() -> None:
    text = section(README, "What was run")
    engine = (ROOT / "images/engine-cpu/requirements.in").read_text()
    router = (ROOT / "images/router/requirements.in").read_text()
    (sglang,) = re.findall(r"^sglang==(\S+)", engine, re.M)
    (routed,) = re.findall(r"^sglang-router==(\S+)", router, re.M)
    assert f"| Kubernetes | {KUBERNETES}:" in text
    assert f"SGLang {sglang}, prefill" in text and f"SGLang {sglang} on CPUs" in text
    assert f"sglang-router {routed}" in text
    gpu, engines = ((ROOT / f"docs/{page}.md").read_text() for page in ("gpu", "engines"))
    assert "one NVIDIA H100" in gpu and f"SGLang {sglang}" in gpu and f"sglang-router {routed}" in gpu
    assert all(version in engines for version in re.findall(r"vLLM (\d\S+) and (\d\S+)", text)[0])


def headings(page: str) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    found = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES)
def test_links_to_headings_are_valid(page: str) -> None:
    folder = (ROOT / page).parent
    links = re.findall(r"\]\(([^)#:\s]*)#([^)]+)\)", (ROOT / page).read_text())
    for target, heading in links:
        where = (folder / target).resolve().relative_to(ROOT) if target else Path(page)
        assert heading in headings(str(where)), f"{page}: {target}#{heading}"


def test_readme_explains_terms_of_messages() -> None:
    """README.md explains the words of messages that new users need: component, role, group, rank, revision and slice."""
    explained = {word.rstrip("s") for word in re.findall(r"\*([a-z]+)\*", section(README, "The three files"))}
    assert {"component", "role", "group", "rank", "revision", "slice"} <= explained


def test_every_page_is_reachable_from_the_readme() -> None:
    """Every page can be reached from README.md by links."""
    seen, new = set(), {"README.md"}
    while new:
        page = new.pop()
        seen.add(page)
        for target in re.findall(r"\]\(([^)#:\s]+\.md)", (ROOT / page).read_text()):
            found = str(((ROOT / page).parent / target).resolve().relative_to(ROOT))
            new |= {found} - seen
    assert sorted({f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md")} - seen) == []
