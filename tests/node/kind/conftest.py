"""`ome local up --kind` and the demo on a real kind, in homes of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ome_local import layout, lifecycle
from tests.node.conftest import ON_KIND


def pytest_itemcollected(item: pytest.Item) -> None:
    """Minutes in Docker."""
    item.add_marker(pytest.mark.skipif(not ON_KIND, reason="takes minutes in Docker: `make e2e` runs it with OME_E2E=kind"))


@pytest.fixture
def home(docker: None, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a home directory for clusters, which are removed afterwards."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("OME_LOCAL_HOME", str(home))
    yield home
    monkeypatch.setenv("OME_LOCAL_HOME", str(home))
    for name in layout.known():
        lifecycle.down(layout.layout(name))
