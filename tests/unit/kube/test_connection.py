"""What is said when there is no cluster."""

import asyncio

import pytest

from ome_operator.kube.connection import Connection, NoConnection


def test_a_reason_has_no_full_stop_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever prints it ends the sentence; the library's words end with one."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT", raising=False)
    with pytest.raises(NoConnection, match=r"this pod: Service host/port is not set$"):
        asyncio.run(Connection.open(None))
