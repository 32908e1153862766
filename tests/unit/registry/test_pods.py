"""What the API server says about pods, and what is no answer."""

from typing import Any

import pytest

from ome_operator.registry.pods import Odd, read


def leader(**more: Any) -> dict[str, Any]:
    """A leader as the API server shows it."""
    labels = {
        "component": "engine",
        "leaderworkerset.sigs.k8s.io/worker-index": "0",
        "apps.kubernetes.io/pod-index": "3",
    }
    return {
        "metadata": {"name": "p-3", "uid": "u", "labels": labels, **more.pop("metadata", {})},
        "spec": {"containers": [{"name": "main"}, {"name": "other"}]},
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:03:20Z"}],
            "containerStatuses": [
                {"name": "other", "state": {"waiting": {}}},
                {"name": "main", "state": {"running": {"startedAt": "1970-01-01T00:01:40Z"}}},
            ],
            **more,
        },
    }


def worker() -> dict[str, Any]:
    """Rank 2 of group 3."""
    labels = {"component": "engine", "ome.io/group": "3", "apps.kubernetes.io/pod-index": "2"}
    return {"metadata": {"name": "p-3-2", "uid": "w", "labels": labels}, "status": {"phase": "Pending"}}


def pods(*items: Any) -> dict[str, Any]:
    """A list."""
    return {"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": list(items)}


def test_a_leader() -> None:
    (pod,) = read(pods(leader()))
    assert pod == ("p-3", "u", "10.0.0.1", "engine", "3", 0, True, 100.0, True, 200.0, False, False, None)


def test_annotations_and_deletion() -> None:
    notes = {"ome.io/draining": "true", "sglang.ai/bootstrap-port": "9000"}
    labels = leader()["metadata"]["labels"]
    more = {"annotations": notes, "labels": labels, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    (pod,) = read(pods(leader(metadata=more)))
    assert pod.deleting and pod.draining and pod.bootstrap_port == 9000


def test_a_rank_that_has_not_started() -> None:
    (pod,) = read(pods(worker()))
    assert (pod.group, pod.rank, pod.running, pod.ready) == ("3", 2, False, False)


@pytest.mark.parametrize("state", [{"terminated": {"exitCode": 0}}, {"waiting": {"reason": "CrashLoopBackOff"}}, {}, None])
def test_a_main_container_that_does_not_run(state: Any) -> None:
    (pod,) = read(pods(leader(containerStatuses=[{"name": "main", "state": state}])))
    assert not pod.running


def test_pods_that_are_no_ranks_are_left_out() -> None:
    router = {"metadata": {"name": "r", "uid": "r", "labels": {"component": "router"}}}
    assert read(pods(router, {"metadata": {"name": "x", "uid": "x"}})) == ()


def test_an_empty_list_is_an_answer() -> None:
    assert read(pods()) == () == read({"kind": "PodList", "metadata": {}, "items": None})


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "no",
        {},
        {"kind": "Status", "status": "Failure"},
        {"kind": "PodList", "metadata": {}},
        {"kind": "PodList", "metadata": {}, "items": [None]},
        {"kind": "PodList", "metadata": {}, "items": [{}]},
        {"kind": "PodList", "metadata": {}, "items": "many"},
        {"kind": "PodList", "metadata": {"continue": "more"}, "items": []},
        pods(leader(conditions=[{"type": "Ready", "lastTransitionTime": "yesterday"}])),
        pods({"metadata": {**worker()["metadata"], "labels": {"ome.io/group": "1"}}}),
    ],
)
def test_an_odd_answer_is_no_list(body: Any) -> None:
    with pytest.raises(Odd):
        read(body)
