"""Tests that labels of nodes are based on the revision of the weights that the model's status pins."""

from typing import Any

import pytest

from ome_operator.controllers.base import Core
from ome_operator.controllers.catalog import CatalogReconciler
from ome_operator.core.observed.objects import Ref
from ome_operator.kube.errors import Transient
from ome_operator.machinery.workqueue import WorkQueue
from tests.support import bodies, yamls
from tests.support.fake_api import FakeApi
from tests.unit.controllers import makers

MODEL, RECORD = Ref("ClusterBaseModel", "", "tiny"), Ref("NodeModels", "", "n")
PINNED = {"weights": {"uri": "hf://test/tiny", "revision": "abc"}}


@pytest.mark.parametrize("others", [(), ("m",)])
async def test_record_of_one_of_two_nodes_pins_no_revision(others: tuple[str, ...]) -> None:
    """If two nodes hold a model, the record of one of them does not pin a revision. Otherwise an attacker with the token of
    one agent could choose the revision (finding T5). In a cluster with a single node, the record of that node counts.
    """
    model = yamls.model()
    body = {**model, "metadata": {**model["metadata"], "name": "tiny", "uid": "u", "resourceVersion": "1"}}
    held = {"kind": "ClusterBaseModel", "name": "tiny", "uri": "hf://test/tiny", "revision": "abc", "state": "Ready"}
    found = [bodies.record("n", held), *(bodies.record(name) for name in others), *map(bodies.node, ("n", *others))]
    seen = [{**one, "metadata": {**one["metadata"], "uid": str(at), "resourceVersion": "2"}} for at, one in enumerate(found)]
    api = FakeApi({"apply": makers.storing(body)})
    passes = CatalogReconciler(makers.cluster(body, *seen), api, makers.queue(), 600.0, makers.wall)
    await passes.reconcile(MODEL)
    (sent,) = (call.body["status"] for call in api.calls if call.verb == "apply")
    assert sent.get("weights", {}).get("revision") == (None if others else "abc")
    assert [one["type"] for one in sent["conditions"] if one["type"] == "NodesAgree"] == (["NodesAgree"] if others else [])


@pytest.mark.parametrize("lose", [False, True])
async def test_node_records_are_reconciled_after_a_revision_was_pinned(lose: bool) -> None:
    """After a model's revision was pinned, the records of nodes are reconciled. This also happens if the response to the
    first write was lost, and the next reconciliation finds the status already written.
    """
    queue: WorkQueue[Ref] = WorkQueue(workers=1, first=60.0, last=60.0, jitter=lambda: 0.5)
    model = yamls.model()
    body = {**model, "metadata": {**model["metadata"], "name": "tiny", "uid": "u", "resourceVersion": "1"}}
    held = {"kind": "ClusterBaseModel", "name": "tiny", "uri": "hf://test/tiny", "state": "Ready"}
    record = {"metadata": {"name": "n", "uid": "r", "resourceVersion": "2"}, "status": {"models": [held]}}
    cluster = makers.cluster(body, {"kind": "NodeModels", **record})
    api = FakeApi({"apply": Transient("no answer") if lose else makers.storing(body)})
    made: Any = CatalogReconciler
    passes = made(cluster, api, queue, 60.0, makers.wall, Core(model_status=lambda *_, **_more: PINNED))
    await passes.reconcile(MODEL)
    assert queue.due_count == (0 if lose else 1)
    if lose:
        api.answers["apply"] = makers.storing(body)
        passes.status_differs = lambda *_: False  # the event of the write has arrived
        await passes.reconcile(MODEL)
        assert queue.due_count == 1
