"""Tests of the message about the progress of a role and about what it waits for."""

from typing import Any

from ome_operator.core.observed.objects import Pod
from ome_operator.core.status.progress import RoleProgress, RoleProgressSpec, progress
from ome_operator.names import role_title
from tests.unit.core.rollout.makers import pod

SETS = (("StatefulSet", "leaders"), ("StatefulSet", "workers"))


def role(groups: int, size: int) -> RoleProgressSpec:
    """Return the role decode with this number of groups of this size."""
    return RoleProgressSpec("decoder", "decode", groups, size, SETS)


def group(number: int, size: int, revision: str = "r1", ready: int | None = None, **more: Any) -> list[Pod]:
    """Return the pods of a group, of which the first `ready` ones are ready."""
    count = size if ready is None else ready
    return [
        pod(f"{revision}-{number}-{rank}", rank, number, "decoder", revision=revision, **{"ready": rank < count, **more})
        for rank in range(size)
    ]


def seen(wanted: RoleProgressSpec, *pods: Pod, **failures: str) -> RoleProgress:
    """Return the progress of the role with these pods."""
    return progress(wanted, pods, {("StatefulSet", name): said for name, said in failures.items()})


def waiting(number: int, reason: str, message: str = "") -> Pod:
    """Return a pod that is not ready, for this reason."""
    return pod(f"w{number}", number, 0, "decoder", ready=False)._replace(reason=reason, message=message)


def test_progress_of_ready_role_is_complete() -> None:
    found = seen(role(2, 3), *group(0, 3), *group(1, 3))
    assert (found.is_complete, found.ready_groups, found.counts, found.reason) == (True, 2, "6/6", "Ready")
    assert found.message == "decode 6/6 pods ready"


def test_ready_pods_of_incomplete_groups_do_not_count_as_serving() -> None:
    found = seen(role(2, 3), *group(0, 3, ready=2), *group(1, 3, ready=2))
    assert (found.is_complete, found.ready_groups, found.counts) == (False, 0, "4/6")


def test_pods_of_two_slices_do_not_form_a_group() -> None:
    found = seen(role(1, 2), *group(0, 2, ready=1), *group(0, 2, revision="r2", ready=1))
    assert found.ready_groups == 0


def test_single_pod_groups_are_counted_over_all_slices() -> None:
    found = seen(role(2, 1), *group(0, 1), *group(0, 1, revision="r2"))
    assert (found.is_complete, found.counts) == (True, "2/2")


def test_terminating_pods_are_not_counted() -> None:
    found = seen(role(1, 1), *group(0, 1, deleting=True))
    assert (found.ready_groups, found.missing) == (0, 1)


def test_surplus_groups_are_not_shown() -> None:
    assert seen(role(1, 1), *group(0, 1), *group(1, 1)).counts == "1/1"


def test_pods_of_other_roles_are_not_counted() -> None:
    assert seen(role(1, 1), pod("x", component="engine")).ready_pods == 0


def test_role_with_zero_groups_is_complete() -> None:
    assert seen(role(0, 4)).is_complete


def test_progress_quotes_scheduler_message() -> None:
    words = "0/16 nodes have 8 free nvidia.com/gpu"
    pods = [*group(0, 12, ready=7)[:7], *(waiting(number, "Unschedulable", words) for number in range(5))]
    found = seen(role(1, 12), *pods)
    assert (found.reason, found.message) == ("Unschedulable", f"decode 7/12: 5 pods unschedulable, {words}")


def test_most_severe_reason_is_shown_first() -> None:
    pods = [
        waiting(0, "Starting"),
        waiting(1, "Unschedulable"),
        waiting(2, "CrashLoopBackOff", "exit 1"),
        waiting(3, "OOMKilled"),
    ]
    found = seen(role(1, 4), *pods)
    assert found.reason == "CrashLoopBackOff"
    assert found.message == (
        "decode 0/4: 1 pod crash again and again, exit 1; 1 pod unschedulable; 1 pod OOMKilled; 1 pod starting"
    )


def test_self_healing_reasons_count_as_progress() -> None:
    for reason in ("Starting", "NotReady"):
        assert seen(role(1, 1), waiting(0, reason)).reason == "Progressing"
    assert seen(role(1, 1), *group(0, 1, deleting=True, ready=0)).reason == "Progressing"


def test_progress_counts_missing_pods() -> None:
    found = seen(role(1, 2), waiting(0, "Starting"))
    assert found.message == "decode 0/2: 1 pod starting; 1 not created yet"
    assert seen(role(1, 2)).reason == "Creating"


def test_refused_pods_are_reported_with_the_refusal() -> None:
    found = seen(role(1, 2), workers="exceeded quota")
    assert (found.reason, found.message) == ("PodsRefused", "decode 0/2: 2 pods cannot be created: exceeded quota")


def test_role_titles_depend_on_disaggregation() -> None:
    assert [role_title(one, True) for one in ("engine", "decoder", "router")] == ["prefill", "decode", "router"]
    assert role_title("engine", False) == "engine"


def test_pod_not_yet_seen_by_the_scheduler_counts_as_progress() -> None:
    found = seen(role(1, 1), waiting(0, "Pending"))
    assert (found.reason, found.message) == ("Progressing", "decode 0/1: 1 pod waiting for the scheduler")
