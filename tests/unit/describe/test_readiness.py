"""Tests of services whose operator no longer works."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ome_operator.describe.diagnosis import find_trouble
from ome_operator.describe.readiness import missing_operator, with_late_operator
from ome_operator.describe.tree import tree
from ome_operator.settings import Settings
from tests.support import parts
from tests.support.simulator import World
from tests.unit.describe.test_diagnosis import text
from tests.unit.describe.test_tree import body, grown

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GONE = (
    "No operator has renewed its Lease for 2 min, so the status may be outdated. To look for the operator: "
    "kubectl get pods -n ome"
)


def lease(seconds: float, **spec: Any) -> dict[str, Any]:
    """Return a Lease that was renewed so many seconds ago."""
    stamp = (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    known = {"holderIdentity": "pod", "leaseDurationSeconds": 15, "renewTime": stamp, **spec}
    return {"metadata": {"name": "ome-operator", "namespace": "ome"}, "spec": known}


def test_unrenewed_lease_is_reported() -> None:
    assert missing_operator([lease(120)], NOW).startswith(GONE)
    assert missing_operator([lease(120, holderIdentity="", leaseDurationSeconds=1)], NOW).startswith(GONE), (
        "the operator has ended"
    )
    assert missing_operator([lease(3 * Settings.lease_duration)], NOW)


def test_allowed_lease_age_depends_on_the_lease_duration() -> None:
    """How long a Lease may go without a renewal before its operator is reported depends on the duration in that Lease."""
    assert missing_operator([lease(120, leaseDurationSeconds=60)], NOW) == ""
    assert missing_operator([lease(20, leaseDurationSeconds=5)], NOW).startswith(
        "No operator has renewed its Lease for 20 s"
    )


@pytest.mark.parametrize("leases", [[], [lease(40)], [lease(-300)], [lease(999), lease(5)], [{"metadata": {}}]])
def test_an_operator_that_may_work_is_not_reported(leases: list[dict[str, Any]]) -> None:
    """No operator is reported as gone if one may work. This is so if leader election is off: then there is no Lease, or one
    without a time of renewal. It is also so if any Lease was renewed recently, even if it belongs to an operator of other
    namespaces.
    """
    assert missing_operator(leases, NOW) == ""


def test_service_without_running_pods_and_operator_is_not_ready() -> None:
    world = grown(World(*parts.kimi(), seed=1))
    observed, one = world.observed(), body(world)
    down = tuple(pod._replace(ready=False) if pod.component == "router" else pod for pod in observed.pods)
    whole, dead = tree(one, observed), tree(one, replace(observed, pods=down))
    assert with_late_operator(dead, "").ready, "the operator has not processed the pods yet"
    found = with_late_operator(dead, GONE)
    assert (found.ready, found.reason) == (False, "Outdated")
    shown = text(find_trouble(found, one["status"]["conditions"], ()))
    assert (
        "is not Ready: Outdated\n  the condition Ready is True, but no pod of router is ready\n" in shown and GONE in shown
    )
    kept = with_late_operator(whole, GONE)
    assert kept.ready and GONE in text(find_trouble(kept, one["status"]["conditions"], ()))


def test_some_ready_groups_of_each_role_do_not_contradict_ready() -> None:
    world = grown(World(*parts.kimi(), seed=1))
    observed, one = world.observed(), body(world)
    seen = tree(one, observed)
    (part,) = seen.slices

    def ready(number: int) -> bool:
        roles = tuple(replace(role, wanted=3, ready=number) for role in part.roles)
        return with_late_operator(replace(seen, slices=(replace(part, roles=roles),)), GONE).ready

    assert [ready(number) for number in (0, 1, 3)] == [False, True, True]


def test_serving_old_revision_does_not_contradict_ready() -> None:
    """A service stays Ready while its old revision serves, although the new revision has no ready group yet."""
    world = grown(World(*parts.kimi(), seed=1))
    seen = tree(body(world), world.observed())
    (part,) = seen.slices
    new = replace(part, revision="new", roles=tuple(replace(role, ready=0) for role in part.roles))
    assert with_late_operator(replace(seen, slices=(part, new)), GONE).ready


def test_unprocessed_edit_suggests_checking_the_operator() -> None:
    world = grown(World(*parts.kimi(), seed=1))
    later = body(world)
    later["metadata"]["generation"] = 2
    found = find_trouble(tree(later, world.observed()), later["status"]["conditions"], ())
    assert found.next.endswith("kubectl get pods -A -l app.kubernetes.io/name=ome-operator")
    shown = text(found)
    assert "the operator has not processed the last edit of the service yet\n" in shown and "→ wait a few seconds" in shown
