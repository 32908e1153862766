"""Tests of `status.modelStatus`, which users of OME read to learn about the model."""

from dataclasses import replace
from typing import Any

import pytest

from ome_operator.api.service_status import LoadedModel
from ome_operator.core.observed.objects import Pod
from ome_operator.core.status.loaded_model import loaded_model, model_names
from ome_operator.core.status.progress import RoleProgress
from ome_operator.core.status.service import status
from tests.unit.core.rollout.makers import pod
from tests.unit.core.status.test_service import BASE, far

FAILED = {
    "phase": "Failed", "revision": "r1",
    "lastFailure": {"podName": "svc-engine-r1-0-0", "exitCode": 137, "reason": "OOMKilled", "time": "2026-01-01T00:00:00Z"},
}  # fmt: skip


def said(
    *progress: RoleProgress, pods: tuple[Pod, ...] = (), groups: tuple[dict[str, Any], ...] = ()
) -> tuple[str, str, str, int]:
    """Return four values: the transition, the state of the active model, the state of the target model, and the number of
    copies.
    """
    found = loaded_model(progress, pods, groups, False)
    assert LoadedModel.read(found).dump() == found, "the schema contains every field and value"
    states = found["modelRevisionStates"]
    copies = found["modelCopies"]["totalCopies"]
    return found["transitionStatus"], states["activeModelState"], states["targetModelState"], copies


@pytest.mark.parametrize(
    ("progress", "begun", "expected"),
    [
        ((far("engine", 2, 2), far("router", 1)), True, ("UpToDate", "Loaded", "Loaded", 2)),
        ((far("engine", 1, 2), far("router", 0)), True, ("InProgress", "Loaded", "Loading", 1)),
        ((far("engine", 1, 1), far("decoder", 0, 1)), True, ("InProgress", "Loading", "Loading", 1)),
        ((far("engine", 0, 2),), True, ("InProgress", "Loading", "Loading", 0)),
        ((far("engine", 0, 2),), False, ("InProgress", "Pending", "Pending", 0)),
        ((far("engine", 0, 0),), False, ("UpToDate", "Standby", "Standby", 0)),
    ],
)
def test_model_status_follows_the_progress_of_the_pods(
    progress: tuple[RoleProgress, ...], begun: bool, expected: tuple[str, str, str, int]
) -> None:
    pods = (replaced(node="n" if begun else ""),)
    assert said(*progress, pods=pods) == expected


def replaced(**changed: Any) -> Pod:
    """Return a pod of the engine with these changes."""
    return pod("r1")._replace(component="engine", **changed)


def test_permanently_failed_group_is_reported_with_its_last_failure() -> None:
    assert said(far("engine", 0), groups=(FAILED,)) == ("BlockedByFailedLoad", "FailedToLoad", "FailedToLoad", 0)
    found = loaded_model((far("engine", 0),), (), (FAILED,), False)
    assert found["modelCopies"]["failedCopies"] == 1
    assert found["lastFailureInfo"] == {
        "reason": "ModelLoadFailed", "message": "OOMKilled", "location": "svc-engine-r1-0-0", "modelRevisionName": "r1",
        "exitCode": 137, "time": "2026-01-01T00:00:00Z",
    }  # fmt: skip


def test_service_status_contains_model_status() -> None:
    assert status(BASE)["modelStatus"]["transitionStatus"] == "UpToDate"
    assert status(replace(BASE, progress=(), problems=()))["conditions"] and "modelStatus" not in status(
        replace(BASE, progress=())
    )


def test_model_status_is_invalid_spec_before_any_pod_can_be_created() -> None:
    assert loaded_model((), (), (), True) == {"transitionStatus": "InvalidSpec"}
    assert loaded_model((), (), (), False) == {}


@pytest.mark.parametrize(
    ("revisions", "expected"),
    [
        ([], "new"),
        ([{}], "new"),
        ([{"inputs": {"model": {"name": "old"}}}], "old"),
        ([{"inputs": {"model": {"name": "old"}}}, {"inputs": {"model": {"name": "new"}}}], "old→new"),
        ([{"inputs": {"model": {"name": "old"}}}] * 2, "old"),
        ([{"inputs": {"model": {"name": "merged"}, "base": {"name": "old"}}}], "old"),
    ],
)
def test_model_in_status_is_that_of_the_revisions(revisions: list[dict[str, Any]], expected: str) -> None:
    """The status names the model of the service's revisions, and not the model `new` that the spec names."""
    assert model_names(revisions, "new") == expected
