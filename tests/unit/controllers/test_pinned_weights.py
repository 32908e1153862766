"""The revision of its weights that a model's status pins decides over the labels of nodes."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from ome_operator.cache.event_handler import EventHandler
from ome_operator.controllers.base import Core
from ome_operator.controllers.catalog import CatalogReconciler
from ome_operator.core.observed.objects import Ref
from ome_operator.kube.errors import Transient
from ome_operator.machinery.workqueue import WorkQueue
from tests.support import yamls

NOW = datetime(2026, 1, 1, tzinfo=UTC)

MODEL, RECORD = Ref("ClusterBaseModel", "", "tiny"), Ref("NodeModels", "", "n")
PINNED = {"weights": {"uri": "hf://test/tiny", "revision": "abc"}}


class Api:
    """An API server that stores a status, and whose first answer may get lost."""

    def __init__(self, body: dict[str, Any], lose: bool) -> None:
        self._body, self._lose = body, lose

    async def apply(self, manifest: dict[str, Any], *_: object, **__: object) -> Any:
        if self._lose:
            self._lose = False
            raise Transient("no answer")
        return SimpleNamespace(body={**self._body, "status": manifest["status"]})


@pytest.mark.parametrize("lose", [False, True])
async def test_records_are_looked_at_when_a_revision_was_pinned(lose: bool) -> None:
    """Also where the first answer was lost, and the status is found written."""
    queue: WorkQueue[Ref] = WorkQueue(workers=1, first=60.0, last=60.0, jitter=lambda: 0.5)
    cluster = EventHandler(lambda *_: None, lambda _: (), lambda _: ())
    model = yamls.model()
    body = {**model, "metadata": {**model["metadata"], "name": "tiny", "uid": "u", "resourceVersion": "1"}}
    cluster.seen("ClusterBaseModel", body)
    held = {"kind": "ClusterBaseModel", "name": "tiny", "uri": "hf://test/tiny", "state": "Ready"}
    cluster.seen("NodeModels", {"metadata": {"name": "n", "uid": "r", "resourceVersion": "2"}, "status": {"models": [held]}})
    api: Any = Api({**body, "metadata": {**body["metadata"], "resourceVersion": "9"}}, lose)
    made: Any = CatalogReconciler
    passes = made(cluster, api, queue, 60.0, lambda: NOW, Core(model_status=lambda *_: PINNED))
    await passes.reconcile(MODEL)
    assert queue.depth == (0 if lose else 1)
    if lose:
        passes.differs = lambda *_: False  # its event has come
        await passes.reconcile(MODEL)
        assert queue.depth == 1
