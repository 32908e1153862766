"""Fixtures: simulated docker and kind programs, and a home directory for clusters."""

import os
from pathlib import Path

import pytest

from ome_local.layout import Layout
from tests.unit.ome_local.kind.fakes import DOCKER, KIND, Fakes


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fakes:
    """Put simulated docker and kind programs first in PATH, and return their state."""
    here = tmp_path / "bin"
    here.mkdir()
    for name, script in (("docker", DOCKER), ("kind", KIND)):
        (here / name).write_text(script.format(here=here))
        (here / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{here}:{os.environ['PATH']}")
    monkeypatch.delenv("OME_KIND_IMAGE", raising=False)
    return Fakes(here)


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """Return the folder of a cluster in a new home directory."""
    monkeypatch.setenv("OME_LOCAL_HOME", str(tmp_path / "home"))
    made = Layout(tmp_path / "home" / "mine")
    made.make()
    return made
