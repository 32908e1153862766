"""Tests of the reasons for which a release is refused. Each is one message with a way out."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from release.checkout import Checkout, read_checkout, why_not

HEAD, OTHER = "a" * 40, "b" * 40
GOOD = Checkout(
    commit=HEAD,
    dirty=(),
    tags={"v0.1.0": OTHER, "nightly": HEAD, "vain": OTHER},
    versions={"ome_operator/__init__.py": "0.2.0", "charts/ome-crd/Chart.yaml (version)": "0.2.0"},
    changelog="## [0.2.0] - 2026-11-24\n\n- Something.\n",
)


def test_clean_checkout_is_not_refused() -> None:
    """A release is not refused for a clean checkout, before its tag exists and when the checkout is at its tag."""
    assert why_not("0.2.0", GOOD) is None
    assert why_not("0.2.0", replace(GOOD, tags={**GOOD.tags, "v0.2.0": HEAD})) is None


@pytest.mark.parametrize(
    ("version", "there", "why"),
    [
        ("", GOOD, 'VERSION is "": write three numbers such as 0.2.0'),
        ("v0.2.0", GOOD, 'VERSION is "v0.2.0"'),
        ("0.2", GOOD, "three numbers"),
        ("0.2.0", replace(GOOD, dirty=("a.py",)), "The working tree has changes (a.py): commit or revert them"),
        ("0.2.0", replace(GOOD, dirty=("a", "b", "c", "d", "e")), "(a, b, c and 2 more)"),
        ("0.2.0", replace(GOOD, tags={"v0.2.0": OTHER}), f"v0.2.0 exists (it is at commit {OTHER[:12]} and"),
        ("0.2.0", replace(GOOD, tags={"v0.3.0": OTHER}), "and 0.3.0 is already tagged: choose a newer version"),
        ("0.2.0-rc.1", replace(GOOD, tags={"v0.2.0": OTHER}), "and 0.2.0 is already tagged"),
        ("0.3.0", GOOD, "ome_operator/__init__.py says 0.2.0, charts/ome-crd/Chart.yaml (version) says 0.2.0: write 0.3.0"),
        ("0.2.0", replace(GOOD, changelog=""), "CHANGELOG.md does not begin with 0.2.0"),
    ],
)  # fmt: skip
def test_release_refusal_is_one_sentence(version: str, there: Checkout, why: str) -> None:
    said = why_not(version, there) or ""
    assert why in said
    assert said.count(". ") == 0, "the message is one sentence"


def test_checkout_returns_commit_tags_and_versions(tmp_path: Path) -> None:
    """Reading a checkout returns the commit, modified files, tags of both kinds with their commits, and all places with the
    version.
    """

    def git(*words: str) -> str:
        mail = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        return subprocess.run(
            ["git", "-C", tmp_path, *mail, *words], check=True, capture_output=True, text=True
        ).stdout.strip()

    for name, text in {
        "ome_operator/__init__.py": '__version__ = "1.0.0"\n',
        "pyproject.toml": '[project]\nversion = "1.1.0"\n',
        "charts/a/Chart.yaml": "version: 1.2.0\nappVersion: 1.3.0\n",
        "CHANGELOG.md": "words",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    git("tag", "v1.0.0")
    git("tag", "-a", "-m", "words", "v0.9.0")
    (tmp_path / "new file").write_text("x")
    found = read_checkout(tmp_path)
    head = git("rev-parse", "HEAD")
    assert found.commit == head
    assert found.dirty == ['"new file"']
    assert found.tags == {"v1.0.0": head, "v0.9.0": head}
    assert found.changelog == "words"
    assert found.versions == {
        "ome_operator/__init__.py": "1.0.0",
        "pyproject.toml": "1.1.0",
        "charts/a/Chart.yaml (version)": "1.2.0",
        "charts/a/Chart.yaml (appVersion)": "1.3.0",
    }
