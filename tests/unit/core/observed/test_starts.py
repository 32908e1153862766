"""Tests of pods whose containers cannot be started by their node: the newest of their Events decides."""

import pytest

from ome_operator.core.observed.starts import start_failure, waits_for_start, with_failures
from ome_operator.core.reasons import ReasonedMessage
from tests.unit.core.rollout.makers import pod

NO_DIRECTORY = 'MountVolume.SetUp failed for volume "model" : hostPath type check failed: /models/nope is not a directory'
SUMMED_UP = "Unable to attach or mount volumes: unmounted volumes=[model]: context deadline exceeded"


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ([("FailedMount", NO_DIRECTORY)], ReasonedMessage("FailedMount", NO_DIRECTORY)),
        ([("FailedMount", SUMMED_UP), ("FailedMount", NO_DIRECTORY)], ReasonedMessage("FailedMount", NO_DIRECTORY)),
        ([("FailedMount", SUMMED_UP)], ReasonedMessage("FailedMount", SUMMED_UP)),
        ([("FailedAttachVolume", "no such disk")], ReasonedMessage("FailedMount", "no such disk")),
        ([("FailedCreatePodSandBox", "no network")], ReasonedMessage("FailedCreatePodSandBox", "no network")),
        ([("Pulling", "pulling image"), ("FailedMount", NO_DIRECTORY)], None),
        ([("Preempted", "by another"), ("FailedMount", NO_DIRECTORY)], None),
        ([], None),
    ],
)
def test_newest_event_determines_the_start_failure(told: list[tuple[str, str]], wanted: ReasonedMessage | None) -> None:
    assert start_failure(told) == wanted


def test_start_failure_is_set_only_on_pods_that_wait_for_their_node() -> None:
    creating = pod("a", ready=False)._replace(reason="ContainerCreating", uid="u-a")
    starting = pod("b", ready=False)._replace(reason="Starting", uid="u-b")
    going = creating._replace(deleting=True)
    assert [waits_for_start(seen) for seen in (creating, starting, going)] == [True, False, False]
    why = ReasonedMessage("FailedMount", NO_DIRECTORY)
    found = with_failures((creating, starting, going), {"u-a": why, "u-b": why})
    assert [(seen.reason, seen.message) for seen in found] == [why, ("Starting", ""), ("ContainerCreating", "")]
    assert with_failures((creating,), {}) == (creating,)
