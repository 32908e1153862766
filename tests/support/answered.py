"""Run commands of `ome` against a cluster in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from ome_operator.cli import connect
from ome_operator.cli.app import app
from ome_operator.kube import podproxy
from tests.support.bodies import Cluster


def answered(cluster: Cluster, words: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a command of `ome` with the arguments `words`. Return its stdout, followed by the error message with which it
    ended, if any. Routers answer from `cluster.summaries`.
    """
    api = cluster.api()
    api.connection = SimpleNamespace(namespace="chat", context="c", server="s")  # type: ignore[assignment]

    class Pages:
        """A stand-in for PodPages that returns the pages of the simulated pods."""

        def __init__(self, _: Any) -> None:
            self.text = cluster.page

        async def close(self) -> None:
            """Do nothing."""

    @asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[Any]:
        yield api

    monkeypatch.setattr(connect, "open_client", opened)
    monkeypatch.setattr(podproxy, "PodPages", Pages)
    result = CliRunner().invoke(app, words.split())
    why = result.exception
    return result.stdout + ("" if why is None or isinstance(why, SystemExit) else f"\n{type(why).__name__}: {why}")
