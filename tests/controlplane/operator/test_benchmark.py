"""Tests of BenchmarkJobs on a real API server with a real Job controller; a kwok Stage simulates the output of their
pods.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ome_local import stages
from ome_operator import keys
from ome_operator.errors import UserError
from tests.support import yamls
from tests.support.rig import Manifest, Rig

REPORT = {"scenario": "D(8,8)", "concurrency": 1, "requests": 10, "failed": 0, "ttft": "12.0", "output": "/out"}


@pytest.fixture
def empty(rig: Rig, namespace: str) -> Iterator[str]:
    """Yield a namespace whose Jobs are deleted at the end of the test. Afterwards, simulated pods behave normally again,
    because the kwok Stages of the test are removed.
    """
    yield namespace
    for kind in ("BenchmarkJob", "Job"):
        for one in rig.all(kind, namespace):
            rig.delete(kind, namespace, one["metadata"]["name"])
    rig.cluster.set_stages()


def ends(rig: Rig, name: str, code: int, **report: Any) -> None:
    """Let the pod of this BenchmarkJob exit with this code and with a termination message of these fields."""
    said = json.dumps({**REPORT, **report})
    rig.cluster.set_stages(stages.finish_stage({keys.BENCHMARK: name}, exit_code=code, message=said))


def says(rig: Rig, namespace: str, name: str, state: str, reason: str, seconds: float = 30.0) -> Manifest:
    """Wait until the status has this state and reason, and return the status."""

    def holds() -> Manifest | None:
        status: Manifest = (rig.get("BenchmarkJob", namespace, name) or {}).get("status", {})
        told = {one["type"]: one["reason"] for one in status.get("conditions", ())}
        return status if (status.get("state"), told.get("Complete")) == (state, reason) else None

    found = rig.wait(f"{name} {state} {reason}", holds, seconds)
    assert found is not None
    return found


def test_benchmark_waits_for_its_service_and_runs_once(rig: Rig, empty: str) -> None:
    rig.create(yamls.runtime(f"rt-{empty}"))
    service = {"inferenceService": {"name": "svc", "namespace": empty}}
    ends(rig, "speed", 0)
    rig.create(yamls.benchmark(empty, "speed", endpoint=service))
    says(rig, empty, "speed", "Pending", "ServiceNotFound")
    assert not rig.all("Job", empty)
    rig.create(yamls.service(empty, "svc", f"rt-{empty}"))
    rig.ready(empty, "svc")
    status = says(rig, empty, "speed", "Completed", "Completed")
    assert (status["report"]["requests"], status["report"]["ttft"]) == (10, "12.0")
    assert status["startTime"] and status["completionTime"]
    (job,) = rig.all("Job", empty)
    rig.wait_until_quiet()
    mark = rig.cluster.audit_mark()
    rig.restart()
    rig.wait_for_leader()
    rig.wait_until_quiet()
    assert [one for one in rig.requests(mark) if one.is_write] == [], "a restarted operator writes nothing"
    rig.delete("Job", empty, job["metadata"]["name"])
    rig.patch("BenchmarkJob", empty, "speed", {"spec": {"numConcurrency": [2]}})

    def told() -> bool:
        conditions = (rig.get("BenchmarkJob", empty, "speed") or {})["status"]["conditions"]
        return [one["reason"] for one in conditions] == ["Completed", "EditedAfterStart"]

    rig.wait("the edit is told", told)
    assert not rig.all("Job", empty), "a finished benchmark does not run again after its Job was deleted"
    rig.delete("ClusterServingRuntime", "", f"rt-{empty}")


def test_failed_requests_fail_the_benchmark_and_its_job_is_deleted_with_it(rig: Rig, empty: str) -> None:
    ends(rig, "broken", 1, failed=3, error="Bad Gateway")
    rig.create(yamls.benchmark(empty, "broken"))
    status = says(rig, empty, "broken", "Failed", "RequestsFailed")
    assert status["failureMessage"].endswith("the first error: Bad Gateway")
    assert rig.all("Job", empty)
    rig.delete("BenchmarkJob", empty, "broken")
    rig.wait("Job and pod are collected", lambda: not rig.all("Job", empty) and not rig.all("Pod", empty))


def test_recreated_benchmark_runs_after_the_former_job_is_deleted(rig: Rig, empty: str) -> None:
    ends(rig, "again", 0)
    rig.create(yamls.benchmark(empty, "again"))
    says(rig, empty, "again", "Completed", "Completed")
    hold = {"metadata": {"finalizers": ["test/hold"]}}
    former = rig.patch("Job", empty, "benchmark-again", hold)["metadata"]["uid"]
    rig.delete("BenchmarkJob", empty, "again")
    rig.create(yamls.benchmark(empty, "again"))
    says(rig, empty, "again", "Pending", "Waiting")
    rig.patch("Job", empty, "benchmark-again", {"metadata": {"finalizers": None}})
    rig.wait("the former is collected", lambda: former not in [one["metadata"]["uid"] for one in rig.all("Job", empty)], 40)
    says(rig, empty, "again", "Completed", "Completed", 10)


def test_foreign_job_is_not_changed(rig: Rig, empty: str) -> None:
    box = {"name": "c", "image": "i"}
    template = {"spec": {"restartPolicy": "Never", "containers": [box], "nodeSelector": {"no": "node"}}}
    metadata = {"name": "benchmark-taken", "namespace": empty}
    theirs = rig.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}})
    rig.create(yamls.benchmark(empty, "taken"))
    says(rig, empty, "taken", "Pending", "NameTaken")
    now = rig.get("Job", empty, "benchmark-taken")
    assert now is not None and now["metadata"]["uid"] == theirs["metadata"]["uid"]
    assert keys.BENCHMARK not in now["metadata"].get("labels", {})


def test_unsupported_benchmark_is_reported_and_runs_after_correction(rig: Rig, empty: str) -> None:
    ends(rig, "mended", 0)
    rig.create(yamls.benchmark(empty, "mended", trafficScenarios=["E(9)"]))
    says(rig, empty, "mended", "Pending", "TrafficNotServed")
    rig.patch("BenchmarkJob", empty, "mended", {"spec": {"trafficScenarios": ["D(9,9)"]}})
    says(rig, empty, "mended", "Completed", "Completed")


def test_refused_benchmark_pod_is_reported(rig: Rig, empty: str) -> None:
    hard = {"spec": {"hard": {"pods": "0"}}}
    rig.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": empty}, **hard})
    rig.create(yamls.benchmark(empty, "starved"))
    says(rig, empty, "starved", "Pending", "PodsRefused", 40)


def test_operator_token_cannot_create_other_jobs(rig: Rig, namespace: str) -> None:
    """With the operator's token, no Jobs other than those of BenchmarkJobs can be created: the chart's admission policy
    denies them even if the operator's Role allows them.
    """
    for labels in ({}, {"ome.io/benchmark": "x", "ome.io/managed-by": "ome-operator"}):
        pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
        metadata = {"name": "mine", "labels": labels}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": pod}}}
        body = json.dumps(job)
        with pytest.raises(UserError, match="may only write Jobs"):
            config = f"--kubeconfig={rig.kubeconfig}"  # the operator's user, whose requests are counted by the suite
            rig.cluster.kubectl("apply", "--server-side", "-n", namespace, "-f", "-", config, stdin=body)
    assert not rig.all("Job", namespace)
