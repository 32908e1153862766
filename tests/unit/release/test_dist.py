"""Tests of the folder dist/: its record, its checksums and its page."""

import json
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from ome_operator.errors import UserError
from release import __main__ as command
from release import dist
from release.dist import Release
from release.push import Item

ITEMS = (Item("ome-operator", "sha256:1"), Item("charts/ome-crd", "sha256:2"))
MADE = Release("1.2.3", "c0ffee", "r.example.com/us", ITEMS, ("amd64", "arm64"))


def test_release_record_is_read_as_written(tmp_path: Path) -> None:
    """The record of a release is read as it was written. A folder without the record contains no release."""
    assert Release.load(tmp_path) is None
    (tmp_path / dist.RECORD).write_text(json.dumps(asdict(MADE)))
    assert Release.load(tmp_path) == MADE


def test_checksum_file_has_the_format_of_sha256sum(tmp_path: Path) -> None:
    """The file of checksums has the format of sha256sum, and covers every file except the record and the list itself."""
    for name in ("b.whl", "a.tgz", dist.RECORD, dist.SUMS):
        (tmp_path / name).write_text(name)
    (tmp_path / dist.LAYOUT).mkdir()
    (tmp_path / dist.SUMS).write_text(dist.sums(tmp_path))
    done = subprocess.run(["sha256sum", "--check", dist.SUMS], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "a.tgz: OK\nb.whl: OK\n"


def test_release_notes_contain_changes_and_install_commands() -> None:
    page = dist.notes(MADE, "## [1.2.3] - 2026-01-01\n\n- New.\n\n## [1.2.2] - 2025-01-01\n\n- Old.\n")
    assert page.startswith("- New.\n") and "Old" not in page
    assert "oci://r.example.com/us/charts/ome-crd --version 1.2.3 --namespace ome --create-namespace\n" in page
    assert "`r.example.com/us/ome-operator@sha256:1`" in page and "(linux/amd64, linux/arm64)" in page


class TestCommand:
    """Tests of the subcommands that make targets call."""

    def test_digests_and_outputs_have_formats_of_cosign_and_workflows(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """`digests` and `outputs` print a release in the formats that cosign and GitHub workflows read."""
        (tmp_path / "dist").mkdir()
        (tmp_path / "dist" / dist.RECORD).write_text(json.dumps(asdict(MADE)))
        assert command.run("digests", root=tmp_path) == command.run("outputs", root=tmp_path) == 0
        assert capsys.readouterr().out.splitlines() == [
            "r.example.com/us/ome-operator@sha256:1",
            "r.example.com/us/charts/ome-crd@sha256:2",
            "ome-operator=sha256:1",
            "charts-ome-crd=sha256:2",
        ]

    def test_missing_release_gives_a_one_line_error(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"There is no release in dist/"):
            command.run("digests", root=tmp_path)
