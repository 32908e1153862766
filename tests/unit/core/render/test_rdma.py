"""Tests of RDMA for pods that request it by annotation."""

from typing import Any

import pytest

from ome_operator.core.render import rdma

ASK = {"rdma.ome.io/auto-inject": "true"}


def injected(box: dict[str, Any] | None = None, pod: dict[str, Any] | None = None, **annotations: str) -> dict[str, Any]:
    """Return a pod with a main container and a sidecar after RDMA was injected."""
    main = {"name": "main", **(box or {})}
    asked = {**ASK, **{f"rdma.ome.io/{key.replace('_', '-')}": value for key, value in annotations.items()}}
    return rdma.inject_rdma({"containers": [main, {"name": "side"}], **(pod or {})}, asked)


@pytest.mark.parametrize("value", ["false", "True", ""])
def test_pod_without_rdma_annotation_is_unchanged(value: str) -> None:
    pod = {"containers": [{"name": "main"}]}
    assert rdma.inject_rdma(pod, {"rdma.ome.io/auto-inject": value}) is pod


@pytest.mark.parametrize("profile", rdma.PROFILES)
def test_rdma_adds_variables_shared_memory_devices_and_minimal_capabilities(profile: str) -> None:
    pod = injected(profile=profile)
    main, side = pod["containers"]
    assert {one["name"]: one["value"] for one in main["env"]} == rdma.PROFILES[profile]
    assert [one["mountPath"] for one in main["volumeMounts"]] == ["/dev/shm", "/dev/infiniband"]
    assert main["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
    assert [one["name"] for one in pod["volumes"]] == ["dshm", "devinf"]
    assert side == {"name": "side"}


def test_rdma_is_added_to_the_named_container() -> None:
    main, side = injected(container_name="side")["containers"]
    assert main == {"name": "main"} and side["volumeMounts"]


def test_rdma_for_a_missing_container_adds_nothing_and_gives_advice() -> None:
    pod = injected(container_name="other")
    assert pod == {"containers": [{"name": "main"}, {"name": "side"}]}
    (said,) = rdma.advice({**ASK, "rdma.ome.io/container-name": "other"}, ["main", "side"])
    assert "'other'" in said and "main, side" in said


def test_unknown_rdma_profile_gives_advice() -> None:
    (said,) = rdma.advice({**ASK, "rdma.ome.io/profile": "x"}, ["main"])
    assert "'x' is not a profile" in said and "infiniband" in said
    assert rdma.advice({"rdma.ome.io/profile": "x"}, ["main"]) == []
    assert rdma.advice(ASK, ["main"]) == []


def test_user_rdma_settings_override_the_profile() -> None:
    shm = {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}
    pod = injected({"env": [{"name": "NCCL_IB_TIMEOUT", "value": "7"}]}, {"volumes": [shm]}, profile="infiniband")
    assert {"name": "NCCL_IB_TIMEOUT", "value": "7"} in pod["containers"][0]["env"]
    assert shm in pod["volumes"]


def test_rdma_keeps_existing_mounts_of_the_container() -> None:
    mounts = [{"name": "a", "mountPath": "/dev/shm/"}, {"name": "b", "mountPath": "/dev/infiniband"}]
    pod = injected({"volumeMounts": mounts})
    assert pod["containers"][0]["volumeMounts"] == mounts
    assert "volumes" not in pod


def test_shared_memory_of_another_container_does_not_count() -> None:
    pod = {"containers": [{"name": "main"}, {"name": "side", "volumeMounts": [{"name": "x", "mountPath": "/dev/shm"}]}]}
    main, _ = rdma.inject_rdma(pod, ASK)["containers"]
    assert [one["mountPath"] for one in main["volumeMounts"]] == ["/dev/shm", "/dev/infiniband"]


@pytest.mark.parametrize(
    ("asked", "got"),
    [(["SYS_NICE"], ["SYS_NICE", "IPC_LOCK"]), (["IPC_LOCK"], ["IPC_LOCK"]), (["ALL"], ["ALL"])],
)
def test_user_capabilities_are_kept(asked: list[str], got: list[str]) -> None:
    security = {"runAsUser": 0, "capabilities": {"add": asked, "drop": ["NET_RAW"]}}
    main = injected({"securityContext": security})["containers"][0]
    assert main["securityContext"] == {"runAsUser": 0, "capabilities": {"add": got, "drop": ["NET_RAW"]}}


def test_ome_rdma_profile_sets_the_same_variables_as_ome() -> None:
    env = {entry["name"]: entry["value"] for entry in injected()["containers"][0]["env"]}
    assert {"NCCL_DEBUG", "NCCL_SOCKET_NTHREADS", "HCOLL_ENABLE_MCAST_ALL", "coll_hcoll_enable"} <= env.keys()
    assert env["RX_QUEUE_LEN"] == env["IB_RX_QUEUE_LEN"] == "8192"
    assert env["NCCL_IB_HCA"].startswith("=mlx5_0,mlx5_1,mlx5_3,") and env["NCCL_IB_HCA"].count("mlx5_") == 16
