"""Tests of whether the quotas of a namespace permit a rollout: the hard limit, minus the used amount, plus what the old pods
release.
"""

from typing import Any

import pytest

from ome_operator.core.placement.quotas import QuotaChange, Usage, of_pod, of_workload, shortage

GPU = "requests.nvidia.com/gpu"


def pod(cpu: str = "2", gpus: int = 8, **more: Any) -> Usage:
    """Return the usage of a pod with one container."""
    limits = {"nvidia.com/gpu": str(gpus), "memory": "1Gi"}
    return of_pod({"containers": [{"resources": {"requests": {"cpu": cpu}, "limits": limits}}], **more})


def quota(hard: dict[str, str], used: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}, "status": {"hard": hard, "used": used}}


def test_pod_usage_contains_requests_limits_and_pod_counts() -> None:
    assert dict(pod("1500m").amounts) == {
        "requests.cpu": 1500, "requests.memory": 2**30, "limits.memory": 2**30, GPU: 8, "limits.nvidia.com/gpu": 8,
        "pods": 1, "count/pods": 1,
    }  # fmt: skip


def test_larger_init_container_counts_for_quota_and_host_ports_do_not() -> None:
    box = {"resources": {"limits": {"cpu": "1"}}, "ports": [{"hostPort": 80, "containerPort": 80}]}
    usage = of_pod({"containers": [box], "initContainers": [{"resources": {"limits": {"cpu": "3"}}}]})
    assert dict(usage.amounts) == {"requests.cpu": 3000, "limits.cpu": 3000, "pods": 1, "count/pods": 1}


@pytest.mark.parametrize("resource", ["pods", "count/pods", GPU, "requests.cpu", "cpu", "memory", "limits.memory"])
def test_equal_replacement_fits_into_a_full_quota(resource: str) -> None:
    amounts = {"pods": "4", "count/pods": "4", GPU: "32", "requests.cpu": "8", "cpu": "8", "memory": "4Gi"}
    full = {resource: amounts.get(resource, "4Gi")}
    same = QuotaChange(((pod(), 4),), ((pod(), 4),))
    assert shortage([quota(full, full)], same) == ""
    more = QuotaChange(((pod(), 5),), ((pod(), 4),))
    said = shortage([quota(full, full)], more)
    assert (
        said.startswith("ResourceQuota q has too little left: the new revision needs ") and f" {resource}, but only " in said
    )
    assert f"(hard {full[resource]}, used {full[resource]}, of which the old revision releases " in said


def test_lowered_quota_permits_less_than_the_service_uses() -> None:
    lowered = quota({"pods": "2"}, {"pods": "4"})
    assert shortage([lowered], QuotaChange(((pod(), 4),), ((pod(), 4),))) == (
        "ResourceQuota q has too little left: the new revision needs 4 pods, but only 2 would be available (hard "
        "2, used 4, of which the old revision releases 4)"
    )


def test_cpu_amounts_are_formatted_as_kubernetes_quantities() -> None:
    small = quota({"requests.cpu": "1"}, {"requests.cpu": "500m"})
    change = QuotaChange(((pod("2500m"), 1),), ((pod("500m"), 1),))
    assert "needs 2500m requests.cpu, but only 1 would be available" in shortage([small], change)


def test_resources_without_a_hard_limit_are_not_limited() -> None:
    change = QuotaChange(((pod(), 9), (of_workload("statefulsets"), 9)), ())
    assert shortage([quota({"services": "0", "limits.cpu": "0"}, {})], change) == ""
    assert shortage([], change) == shortage([{"metadata": {"name": "new"}}], change) == ""
    assert "needs 9 count/statefulsets.apps" in shortage([quota({"count/statefulsets.apps": "8"}, {})], change)


@pytest.mark.parametrize(
    ("spec", "counts"),
    [
        ({"scopes": ["NotTerminating"]}, True),
        ({"scopes": ["NotBestEffort", "NotTerminating"]}, True),
        ({"scopes": ["BestEffort"]}, False),
        ({"scopes": ["Terminating"]}, False),
        ({"scopes": ["CrossNamespacePodAffinity"]}, False),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "BestEffort", "operator": "Exists"}]}}, False),
        *(
            (
                {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": how, "values": [name]}]}},
                is_,
            )
            for how, name, is_ in (
                ("In", "high", True),
                ("In", "low", False),
                ("NotIn", "low", True),
                ("NotIn", "high", False),
            )
        ),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}}, True),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]}}, False),
    ],
)
def test_scoped_quota_counts_only_pods_in_its_scopes(spec: dict[str, Any], counts: bool) -> None:
    change = QuotaChange(((pod(priorityClassName="high"), 1),), ())
    assert bool(shortage([quota({"pods": "0"}, {}, **spec)], change)) is counts


def test_a_pod_without_amounts_is_best_effort() -> None:
    change = QuotaChange(((of_pod({"containers": [{}]}), 1), (of_workload("statefulsets"), 1)), ())
    assert "1 pods" in shortage([quota({"pods": "0"}, {}, scopes=["BestEffort"])], change)
    assert shortage([quota({"pods": "0"}, {}, scopes=["NotBestEffort"])], change) == ""


def test_quota_message_counts_further_quotas() -> None:
    none = [quota({"pods": "0"}, {}) for _ in range(5)]
    assert shortage(none, QuotaChange(((pod(), 1),), ())).endswith("; 2 more")
