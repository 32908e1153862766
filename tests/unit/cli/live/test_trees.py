"""Tests of which objects of a cluster become trees."""

from typing import Any

import pytest

from ome_operator.cli.live.trees import trees
from ome_operator.kube.errors import Forbidden, NotFound, NotServed
from tests.support import yamls
from tests.support.fake_api import Call, FakeApi

MISSING = NotFound("there is no such object", 404)


def serving(name: str) -> dict[str, Any]:
    """Return a Serving as the API server returns it."""
    return {"metadata": {"name": name, "namespace": "team"}, "spec": {"baseModel": "m"}}


def cluster(servings: Any) -> FakeApi:
    """Return a cluster with one InferenceService, `made`."""
    service = yamls.service("team", "made", "rt")

    def listed(call: Call) -> Any:
        return {"InferenceService": [service], "Serving": servings}.get(call.kind, [])

    def given(call: Call) -> Any:
        known = servings if isinstance(servings, list) and call.kind == "Serving" else []
        return next((one for one in known if one["metadata"]["name"] == call.name), MISSING)

    return FakeApi({"list_objects": listed, "get": given})


async def test_servings_without_a_service_are_shown() -> None:
    found = await trees(cluster([serving("made"), serving("new")]), "team")
    assert [tree.name for tree in found] == ["made", "new"]


async def test_cluster_without_sglang_kinds_shows_services_only() -> None:
    found = await trees(cluster(NotServed("404 page not found", 404)), "team")
    assert [tree.name for tree in found] == ["made"]


async def test_name_of_a_serving_is_accepted() -> None:
    (found,) = await trees(cluster([serving("new")]), "team", "new")
    assert found.name == "new"
    with pytest.raises(NotFound):
        await trees(cluster([]), "team", "new")


@pytest.mark.parametrize("old", [True, False])
async def test_lease_is_read_once_for_all_services(old: bool) -> None:
    api = cluster([serving("new")])
    stamp = "2026-01-01T00:00:00.000000Z" if old else "2999-01-01T00:00:00.000000Z"
    api.answers["list_objects Lease"] = [
        {"metadata": {"namespace": "ome"}, "spec": {"holderIdentity": "pod", "leaseDurationSeconds": 15, "renewTime": stamp}}
    ]
    found = await trees(api, "team")
    assert [bool(one.late) for one in found] == [old, old]
    assert [call.selector for call in api.calls if call.kind == "Lease"] == ["metadata.name=ome-operator"]


async def test_missing_lease_permission_gives_no_hint() -> None:
    api = cluster([])
    api.answers["list_objects Lease"] = Forbidden("no", 403)
    assert [one.late for one in await trees(api, "team")] == [""]
