"""A registry behind TLS whose certificate oras and helm trust."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import tls_registry
from tests.support.tls_registry import Front


@pytest.fixture
def front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    with tls_registry.running(tmp_path / "tls") as made:
        monkeypatch.setenv("SSL_CERT_FILE", str(made.authority))
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        yield made
