"""Tests that a model beyond the limit of its namespace has a condition, and that no work is done for it."""

from typing import Any

from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.event_handler import EventHandler
from ome_operator.controllers.base import CORE
from ome_operator.controllers.catalog import CatalogReconciler
from ome_operator.core.observed.objects import Deps, Ref
from tests.support import yamls
from tests.support.fake_api import FakeApi
from tests.support.parts import change_deps
from tests.unit.controllers import makers


def body(name: str, day: int, kind: str = "BaseModel") -> dict[str, Any]:
    made = yamls.model(name)
    namespace = {"namespace": "team"} if kind == "BaseModel" else {}
    metadata = {
        "name": name,
        "uid": f"{kind}-{name}",
        "resourceVersion": "1",
        "creationTimestamp": f"2026-01-0{day}T00:00:00Z",
    }
    return {**made, "kind": kind, "metadata": {**metadata, **namespace}}


async def test_model_above_the_limit_has_condition_too_many_models() -> None:
    cluster = EventHandler(
        ClusterCache(change_deps(Deps(), models_per_namespace=2)), lambda *_: None, lambda _: (), lambda _: ()
    )
    models = [body("c", 3), body("a", 1), body("b", 2), body("w", 9, "ClusterBaseModel")]
    for item in models:
        cluster.handle_observed(item["kind"], item)
    told: dict[str, str] = {}
    for item in models:
        api = FakeApi({"apply": makers.storing(item)})
        passes = CatalogReconciler(cluster, api, makers.queue(), 60.0, makers.wall, CORE)
        await passes.reconcile(Ref(item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]))
        (condition,) = [each for each in api.bodies("apply")[0]["status"]["conditions"] if each["type"] == "Ready"]
        told[item["metadata"]["name"]] = condition["reason"]
        if condition["reason"] == "TooManyModels":
            assert "more than 2 BaseModels, and only the 2 oldest are used" in condition["message"]
    assert told == {"a": "OnNoNode", "b": "OnNoNode", "c": "TooManyModels", "w": "OnNoNode"}
