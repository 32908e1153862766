"""The page that a person opens when a condition is False explains every reason that the code can give."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_REASONS = (
    r'Problem\(\s*"\w+",\s*"(\w+)"',
    r'ProblemError\(\s*[^,]+,\s*"(\w+)"',
    r'Gate\(\s*"(\w+)"',
    r'reason="(\w+)"',
    r'Condition\(\s*[\w."]+,\s*(?:False|None),\s*"(\w+)"',
    r'Refusal\(\s*"(\w+)"',
)


def reasons() -> set[str]:
    """Every literal reason in the code."""
    text = "\n".join(file.read_text() for file in sorted((ROOT / "ome_operator").rglob("*.py")))
    return {found for pattern in _REASONS for found in re.findall(pattern, text)}


def test_every_reason_is_explained() -> None:
    known = reasons()
    assert {"BaseModelNotFound", "NameTaken", "DryRunRefused", "ClaimInOtherNamespace", "OnNoNode"} <= known
    page = (ROOT / "docs/troubleshooting.md").read_text()
    rows = {word for row in re.findall(r"^\| ([^|]+) \|", page, re.M) for word in row.split(", ")}
    assert sorted(known - {word.strip() for word in rows}) == []


def test_links_lead_somewhere() -> None:
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"
