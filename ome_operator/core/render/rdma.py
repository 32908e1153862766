"""Configure RDMA for pods that request it by annotation: environment, shared memory and devices (docs/security.md).

The container gets the capability IPC_LOCK instead of `privileged`: to register memory with a NIC, a process has to lock the
memory and needs no other privilege.
"""

from collections.abc import Mapping

from ome_operator import keys
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.podspec.merge import merge

_COMMON = {"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0", "NCCL_IGNORE_CPU_AFFINITY": "1"}
PROFILES: Mapping[str, Mapping[str, str]] = {
    "infiniband": {**_COMMON, "NCCL_IB_TIMEOUT": "22", "NCCL_IB_RETRY_CNT": "7", "UCX_TLS": "rc,tcp,cuda_copy,cuda_ipc,sm"},
    "roce": {
        **_COMMON,
        "NCCL_IB_GID_INDEX": "3",
        "NCCL_IB_TIMEOUT": "22",
        "NCCL_IB_QPS_PER_CONNECTION": "4",
        "UCX_IB_GID_INDEX": "3",
    },
    "oci-roce": {
        **_COMMON,
        "NCCL_NET_PLUGIN": "none",
        "NCCL_CROSS_NIC": "2",
        "NCCL_CUMEM_ENABLE": "0",
        "NCCL_IB_GID_INDEX": "3",
        "NCCL_IB_QPS_PER_CONNECTION": "16",
        "NCCL_IB_SPLIT_DATA_ON_QPS": "0",
        "NCCL_IB_TC": "41",
        "NCCL_IB_SL": "0",
        "NCCL_IB_TIMEOUT": "22",
        "UCX_TLS": "tcp",
        "UCX_NET_DEVICES": "eth0",
        # OME's profile of this name sets these variables, too, so that a runtime written for OME behaves the same here.
        "NCCL_DEBUG": "INFO",
        "NCCL_SOCKET_NTHREADS": "16",
        "NCCL_IB_HCA": f"={','.join(f'mlx5_{number}' for number in range(18) if number not in (2, 11))}",
        "HCOLL_ENABLE_MCAST_ALL": "0",
        "coll_hcoll_enable": "0",
        "RX_QUEUE_LEN": "8192",
        "IB_RX_QUEUE_LEN": "8192",
    },
}
"""Environment per profile: variables of NCCL and UCX for the fabric, as their documentation names them."""
DEFAULT = "oci-roce"

_SHM = {"name": "dshm", "emptyDir": {"medium": "Memory"}}
_DEVICES = {"name": "devinf", "hostPath": {"path": "/dev/infiniband"}}


def advice(annotations: Mapping[str, str], containers: list[str]) -> list[str]:
    """Return sentences about annotations that name an unknown profile or container."""
    if annotations.get(keys.RDMA_INJECT) != "true":
        return []
    sentences = []
    if (profile := annotations.get(keys.RDMA_PROFILE, DEFAULT)) not in PROFILES:
        sentences.append(f"annotation {keys.RDMA_PROFILE}: {profile!r} is not a profile; use one of {', '.join(PROFILES)}")
    if (name := annotations.get(keys.RDMA_CONTAINER) or containers[0]) not in containers:
        sentences.append(
            f"annotation {keys.RDMA_CONTAINER}: there is no container {name!r}; use one of {', '.join(containers)}"
        )
    return sentences


def inject_rdma(pod: Manifest, annotations: Mapping[str, str]) -> Manifest:
    """Return the pod spec in which one container is configured for RDMA. An annotation names the container; without it, the
    runner is configured. The user's values take precedence.
    """
    if annotations.get(keys.RDMA_INJECT) != "true":
        return pod
    name = annotations.get(keys.RDMA_CONTAINER) or pod["containers"][0]["name"]
    env = PROFILES.get(annotations.get(keys.RDMA_PROFILE, DEFAULT), {})
    box = next((entry for entry in pod["containers"] if entry["name"] == name), None)
    if box is None:
        return pod
    mounted = {entry["mountPath"].rstrip("/") for entry in box.get("volumeMounts") or ()}
    volumes = [entry for entry, path in ((_SHM, "/dev/shm"), (_DEVICES, "/dev/infiniband")) if path not in mounted]
    mounts = [{"name": "dshm", "mountPath": "/dev/shm"}, {"name": "devinf", "mountPath": "/dev/infiniband"}]
    added = {
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "volumeMounts": [entry for entry in mounts if entry["mountPath"] not in mounted],
    }
    security = merge(box.get("securityContext") or {}, {"capabilities": {"add": _capabilities(box)}})
    wider = {**merge(added, box), "securityContext": security}
    out = {**pod, "containers": [wider if entry is box else entry for entry in pod["containers"]]}
    if volumes:
        out["volumes"] = merge(volumes, pod.get("volumes") or [], "volumes")
    return out


def _capabilities(container: Manifest) -> list[str]:
    """Return the capabilities that the container requests, and IPC_LOCK, which the registration of memory with a NIC
    requires.
    """
    requested = ((container.get("securityContext") or {}).get("capabilities") or {}).get("add") or []
    return [*requested, *(["IPC_LOCK"] if not {"IPC_LOCK", "ALL"} & {*requested} else [])]
