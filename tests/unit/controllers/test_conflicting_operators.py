"""Tests that two operators of the same class detect each other, as far as their rights permit."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ome_operator.cache.scope import Scope
from ome_operator.controllers.conflicting_operators import ConflictingOperators
from ome_operator.kube.errors import Forbidden, NotFound
from tests.support.fake_api import FakeApi

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NAMES = ("a", "b")


def lease(
    namespace: str, name: str = "ome-operator", holder: str = "pod", age: float = 1.0, lasts: int = 15
) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": lasts, "renewTime": (NOW - timedelta(seconds=age)).isoformat()}
    return {"kind": "Lease", "metadata": {"namespace": namespace, "name": name, "labels": {}}, "spec": spec}


def rivals(api: FakeApi, scope: Scope) -> ConflictingOperators:
    return ConflictingOperators(api, scope, ("ome", "ome-operator"), lambda name: name != "absent", lambda: NOW)


@pytest.mark.parametrize(
    ("other", "namespaces", "found"),
    [
        (lease("ome"), (), False),
        (lease("ml"), (), True),
        (lease("ml"), NAMES, True),
        (lease("ml", age=100), (), False),
        (lease("ml", holder=""), (), False),
        (lease("a", "ome-operator-claim", "ml/x", lasts=300), NAMES, True),
        (lease("c", "ome-operator-claim", "ml/x", lasts=300), NAMES, False),
        (lease("c", "ome-operator-claim", "ml/x", lasts=300), (), True),
        (lease("a", "ome-operator-claim", "ome/ome-operator", lasts=300), NAMES, False),
    ],
)
async def test_operators_of_the_same_class_are_found_by_their_leases(
    other: dict[str, Any], namespaces: tuple[str, ...], found: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator that may read all Leases of its class reports other operators of the class. It does not report its own
    Lease or expired Leases. Of operators for single namespaces, it reports only those for its own namespaces.
    """
    api = FakeApi({"list_objects Lease": [other]})
    made = rivals(api, Scope(namespaces))
    await made.check()
    await made.check()
    assert bool(made.found) == found
    assert api.calls[0].selector == "ome.io/operator-lease="
    assert len([said for said in caplog.records if "another operator" in said.message]) == found, "it is logged once"


async def test_claim_leases_are_created_renewed_and_taken_over_after_expiry() -> None:
    answers: dict[str, Any] = {"get Lease": NotFound("none"), "update": lambda call: None}
    api = FakeApi(answers)
    made = rivals(api, Scope((*NAMES, "absent"), cluster_kinds=False))

    async def update(manifest: dict[str, Any], manager: str = "") -> dict[str, Any]:
        updated.append(manifest["spec"]["holderIdentity"])
        return manifest

    updated: list[str] = []
    api.update = update  # type: ignore[method-assign]
    await made.check()
    assert [made["metadata"]["namespace"] for made in api.bodies("create")] == ["a", "b"], "only in watched namespaces"
    api.answers["get Lease"] = lease("a", "ome-operator-claim", "ome/ome-operator")
    await made.check()
    assert updated == ["ome/ome-operator"] * 2 and made.found == {}
    api.answers["get Lease"] = lease("a", "ome-operator-claim", "ml/ome-operator", age=10, lasts=300)
    await made.check()
    assert updated == ["ome/ome-operator"] * 2 and set(made.found) == {"a", "b"}
    api.answers["get Lease"] = lease("a", "ome-operator-claim", "ml/ome-operator", age=10_000, lasts=300)
    await made.check()
    assert len(updated) == 4 and made.found == {}


async def test_unreadable_leases_report_no_rival() -> None:
    made = rivals(FakeApi({"list_objects": Forbidden("no")}), Scope())
    await made.check()
    assert made.found == {}


async def test_malformed_lease_does_not_stop_the_operator(caplog: pytest.LogCaptureFixture) -> None:
    """A Lease that cannot be parsed does not end the operator. Anyone who may write a Lease in some namespace chooses its
    labels, and thereby which operators read it.
    """
    odd = lease("ml")
    odd["spec"]["leaseDurationSeconds"] = "soon"
    api = FakeApi({"list_objects Lease": [odd]})
    looking = asyncio.create_task(rivals(api, Scope()).run())
    await asyncio.sleep(0.05)
    assert not looking.done() and "the check for other operators failed" in caplog.text
    looking.cancel()
