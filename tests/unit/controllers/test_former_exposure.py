"""Tests that the objects of a previous `exposure.kind` are removed, and no others."""

import logging
from typing import Any

import pytest

from ome_operator.controllers.former_exposure import remove
from ome_operator.kube.errors import Conflict, Forbidden, Transient
from tests.support.fake_api import Call, FakeApi

SERVED = {"networking.k8s.io/v1": ["ingresses"], "gateway.networking.k8s.io/v1": ["httproutes"]}


OURS = {"uid-of-svc"}.__contains__


def metadata(name: str, **owner: Any) -> dict[str, Any]:
    """Return the metadata of an object with our labels, whose controller is a service by default."""
    reference = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "InferenceService",
        "name": "svc",
        "uid": "uid-of-svc",
        "controller": True,
        **owner,
    }
    return {"name": name, "namespace": "team", "uid": f"uid-{name}", "ownerReferences": [reference]}


def api(**answers: Any) -> FakeApi:
    """Return an API server that has our objects, foreign objects with our labels, and the given answers."""
    found = [
        metadata("svc"),
        metadata("copy", controller=False),
        metadata("theirs", kind="InferencePool", apiVersion="x/v1"),
        metadata("blue", uid="uid-of-another-operators"),
    ]
    usual = {"served": lambda call: SERVED[call.kind], "list_metadata": found, "delete": {"kind": "Status"}}
    return FakeApi({**usual, **answers})


def deleted(client: FakeApi) -> list[tuple[str, str, str]]:
    """Return the kind, the name and the UID of each deleted object."""
    return [(call.kind, call.name, call.uid) for call in client.calls if call.verb == "delete"]


@pytest.mark.parametrize(
    ("made", "kinds"), [("", ["Ingress", "HTTPRoute"]), ("Ingress", ["HTTPRoute"]), ("HTTPRoute", ["Ingress"])]
)
async def test_own_exposure_objects_of_other_kinds_are_deleted(made: str, kinds: list[str]) -> None:
    client = api()
    await remove(client, made, owns=OURS, after=0)
    assert deleted(client) == [(kind, "svc", "uid-svc") for kind in kinds]
    assert {call.selector for call in client.calls if call.verb == "list_metadata"} == {"ome.io/managed-by=ome-operator"}


async def test_unserved_exposure_kind_is_not_listed() -> None:
    client = api(served=lambda call: SERVED[call.kind] if call.kind == "networking.k8s.io/v1" else [])
    await remove(client, "", owns=OURS)
    assert client.kinds("list_metadata") == ["Ingress"]


async def test_missing_list_permission_keeps_former_objects_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """If the operator may not list the objects of a previous `exposure.kind`, these objects stay. The operator logs a
    message and continues.
    """
    caplog.set_level(logging.INFO)
    client = api(list_metadata=Forbidden("cannot list ingresses"))
    await remove(client, "", owns=OURS)
    assert deleted(client) == [] and "exposure.removeFormer" in caplog.text


async def test_removal_is_retried_while_the_api_server_is_unavailable() -> None:
    told: list[Call] = []

    def listed(call: Call) -> Any:
        told.append(call)
        return Transient("no connection") if len(told) == 1 else [metadata("svc")]

    client = api(list_metadata=listed)
    await remove(client, "HTTPRoute", owns=OURS, after=0, again=0)
    assert deleted(client) == [("Ingress", "svc", "uid-svc")]


async def test_conflict_on_deletion_is_not_an_error() -> None:
    client = api(delete=Conflict("another UID"), list_metadata=[metadata("a"), metadata("b")])
    await remove(client, "HTTPRoute", owns=OURS, after=0)
    assert [name for _, name, _ in deleted(client)] == ["a", "b"]


async def test_network_policies_are_not_removed_as_former_exposure() -> None:
    """NetworkPolicies are not removed when `exposure.kind` changes. They are also created on demand, but protect a service
    instead of exposing it.
    """
    client = api()
    await remove(client, "", owns=OURS)
    assert "NetworkPolicy" not in {call.kind for call in client.calls}


async def test_only_watched_namespaces_are_listed() -> None:
    client = api()
    await remove(client, "Ingress", owns=OURS, places=("a", "b"), after=0)
    asked = [(call.kind, call.namespace) for call in client.calls if call.verb == "list_metadata"]
    assert asked == [("HTTPRoute", "a"), ("HTTPRoute", "b")]


async def test_former_exposure_objects_are_kept_during_a_freeze() -> None:
    client, held = api(), [True, True, False]
    await remove(client, "Ingress", owns=OURS, held=lambda: bool(held) and held.pop(0), after=0, again=0)
    assert held == [] and deleted(client) == [("HTTPRoute", "svc", "uid-svc")]
