"""Tests of the counts that are derived from the audit log."""

from typing import Any

from bench.counting import OPERATOR, Count, count
from ome_local.audit_log import Request


def request(verb: str, resource: str, **more: Any) -> Request:
    """Return a request of the operator."""
    what = {
        "user": OPERATOR,
        "group": "",
        "subresource": "",
        "namespace": "n",
        "name": "a",
        "code": 200,
        "at": "",
        "uri": "/x?y",
    }
    return Request(**{**what, "verb": verb, "resource": resource, **more})


def test_only_requests_of_the_operator_are_counted() -> None:
    assert count([request("patch", "services", user="admin")]) == Count()


def test_lease_requests_are_counted_separately() -> None:
    found = count([request("update", "leases"), request("get", "leases"), request("list", "pods")])
    assert (found.requests, found.writes, found.lease) == (1, 0, 2)


def test_created_objects_are_counted_by_status_201_without_events() -> None:
    found = count(
        [
            request("patch", "services", code=201),
            request("create", "rolescales", code=201),
            request("create", "events", code=201),
            request("patch", "inferenceservices", subresource="status"),
            request("patch", "services", code=409),
        ]
    )
    assert (found.writes, found.created, found.refused) == (5, 2, 1)
    assert found.written == {
        "patch services": 2,
        "create rolescales": 1,
        "create events": 1,
        "patch inferenceservices/status": 1,
    }


def test_other_requests_are_counted_by_name() -> None:
    found = count([request("get", "", uri="/apis/ome.io/v1beta1"), *map(request, ("get", "watch", "list"), ["pods"] * 3)])
    assert found.others == {"get pods": 1}
    assert found.discovery == 1
    assert found.verbs == {"get": 2, "watch": 1, "list": 1}
