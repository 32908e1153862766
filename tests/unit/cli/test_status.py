"""`ome status` beyond its tree: what a program gets, and what `--watch` prints where nobody watches."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from ome_operator.cli import status
from ome_operator.cli.output import Format, emit
from ome_operator.core.observed.objects import Observed
from ome_operator.describe.tree import Tree, tree
from ome_operator.kube.errors import KubeError, Transient


def seen(ready: str, message: str = "") -> Tree:
    """A service without slices."""
    condition = {"type": "Ready", "status": ready, "reason": "Serving", "message": message}
    body = {"metadata": {"name": "svc", "namespace": "team"}, "status": {"conditions": [condition], "url": "http://svc"}}
    return tree(body, Observed())


def test_fields_are_spelled_as_in_kubernetes(capsys: pytest.CaptureFixture[str]) -> None:
    emit(Format.JSON, [seen("True")])
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["name"], one["ready"], one["slices"]) == ("svc", True, [])
    assert not [name for name in one if "_" in name]


def test_watching_prints_again_only_what_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An API server that does not answer is a complaint, and the last view stays."""
    monkeypatch.setattr(status, "INTERVAL", 0)
    views: Iterator[Tree | KubeError] = iter(
        [seen("False", "one"), seen("False", "one"), Transient("no answer"), seen("False", "two"), seen("True")]
    )

    async def look() -> list[Tree]:
        found = next(views, None)
        if found is None:
            raise asyncio.CancelledError  # Ctrl+C
        if isinstance(found, KubeError):
            raise found
        return [found]

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(status._watch(look, None, False))
    said = capsys.readouterr()
    assert [line.split(": ")[-1] for line in said.out.splitlines() if "Serving" in line] == ["one", "two"]
    assert said.out.count("✓ svc") == 1
    assert said.err == "the cluster does not answer: no answer\n"
