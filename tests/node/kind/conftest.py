"""Fixtures for tests of `ome local up --kind` and of the demo with a real kind, each with its own home directory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ome_local import layout, lifecycle
from tests.node.conftest import ON_KIND


def pytest_itemcollected(item: pytest.Item) -> None:
    """Skip these tests unless OME_E2E is `kind`, because they take minutes."""
    item.add_marker(pytest.mark.skipif(not ON_KIND, reason="takes minutes in Docker: `make e2e` runs it with OME_E2E=kind"))


@pytest.fixture
def home(docker: None, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a home directory for clusters, which are removed afterwards."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("OME_LOCAL_HOME", str(home))
    yield home
    monkeypatch.setenv("OME_LOCAL_HOME", str(home))
    for name in layout.known_clusters():
        lifecycle.down(layout.layout(name))
