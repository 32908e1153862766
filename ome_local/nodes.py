"""Simulated nodes: Node objects that schedulers and operators cannot distinguish from real machines.

The nodes have the labels that cloud providers, node feature discovery and GPU feature discovery write on such machines.
"""

from dataclasses import dataclass
from typing import Any

from ome_local.binaries.versions import KUBERNETES
from ome_operator.errors import UserError

RACK = "topology.ome.io/rack"
"""Node label with the rack. The label belongs to this project, because no well-known label for racks exists; placement
accepts any label."""
BLOCK = "topology.ome.io/block"
"""Node label with the block: the nodes of several racks that are connected to one leaf switch of the RDMA fabric."""
NODES_PER_RACK = 4
RACKS_PER_BLOCK = 4
FAKE = "kwok.x-k8s.io/node"
SIMULATED = ("type", "kwok")
"""Label (key, value) of every simulated node, as in kwok's documentation. Workloads that need a real node exclude nodes
with this label."""
Manifest = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A type of node."""

    instance: str
    product: str | None = None
    """Value of the product label that GPU feature discovery writes; None for a machine without GPUs."""
    gpus: int = 0
    memory_mib: int = 0
    """Memory of one GPU in MiB, as the driver reports it."""
    family: str = ""
    compute: str = "0.0"
    cpu: int = 192
    memory: str = "2Ti"
    cpu_vendor: str = "Intel"


MACHINES = {
    "h200": Machine(
        instance="BM.GPU.H200.8", product="NVIDIA-H200", gpus=8, memory_mib=143771, family="hopper", compute="9.0"
    ),
    "h100": Machine(
        instance="BM.GPU.H100.8", product="NVIDIA-H100-80GB-HBM3", gpus=8, memory_mib=81559, family="hopper",
        compute="9.0",
    ),
    "b200": Machine(
        instance="BM.GPU.B200.8", product="NVIDIA-B200", gpus=8, memory_mib=183359, family="blackwell",
        compute="10.0", memory="4Ti",
    ),
    "a100": Machine(
        instance="BM.GPU.A100-v2.8", product="NVIDIA-A100-SXM4-80GB", gpus=8, memory_mib=81920, family="ampere",
        compute="8.0", cpu=128, cpu_vendor="AMD",
    ),
    "cpu": Machine(instance="BM.Standard.E5.192", cpu_vendor="AMD"),
}  # fmt: skip


def machine(accelerator: str) -> Machine:
    """Return the machine type with the name `accelerator`. Raises UserError, which lists the existing names, for an unknown
    name.
    """
    if accelerator not in MACHINES:
        raise UserError(f"Unknown accelerator {accelerator!r}: use one of {', '.join(sorted(MACHINES))}.")
    return MACHINES[accelerator]


def simulated(accelerator: str, count: int, gpus_per_node: int | None = None, *, addresses: bool = True) -> list[Manifest]:
    """Return the nodes `h200-00`, `h200-01`, …, with four nodes per rack and sixteen nodes per leaf switch, all in one zone.
    `accelerator` is the name of a kind of machine, such as `h200`. `gpus_per_node` is the number of GPUs of each node; by
    default that of the machine.

    If `addresses` is false, the nodes have only names. Kind's network daemon would otherwise route to the addresses, and
    panics.
    """
    kind = machine(accelerator)
    gpus = kind.gpus if gpus_per_node is None else gpus_per_node
    if gpus and kind.product is None:
        raise UserError(f"A machine of kind {accelerator!r} has no GPUs: leave out --gpus-per-node.")
    return [_node(accelerator, kind, number, gpus, addresses) for number in range(count)]


def _node(accelerator: str, kind: Machine, number: int, gpus: int, addresses: bool) -> Manifest:
    name, resources = f"{accelerator}-{number:02d}", _resources(kind, gpus)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {FAKE: "fake", "node.alpha.kubernetes.io/ttl": "0"},
            "labels": {**_base_labels(name, kind, number), **(_gpu_labels(kind, gpus) if gpus else {})},
        },
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [*(_address(number) if addresses else []), {"type": "Hostname", "address": name}],
            "nodeInfo": _info(),
        },
    }


def _address(number: int) -> list[Manifest]:
    return [{"type": "InternalIP", "address": f"10.{100 + number // 62500}.{number // 250 % 250}.{number % 250 + 1}"}]


def _resources(kind: Machine, gpus: int) -> dict[str, str]:
    plain = {"cpu": str(kind.cpu), "memory": kind.memory, "ephemeral-storage": "28Ti", "pods": "250"}
    # A shared RDMA device plugin offers each device many times. Nodes have both common resource names, because runtimes may
    # request either name.
    shared = {"nvidia.com/gpu": str(gpus), "rdma/ib": "1k", "rdma/hca_shared_devices_a": "1k"}
    return {**plain, **(shared if gpus else {})}


def _base_labels(name: str, kind: Machine, number: int) -> dict[str, str]:
    rack = number // NODES_PER_RACK
    return {
        SIMULATED[0]: SIMULATED[1],
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": kind.instance,
        "topology.kubernetes.io/region": "local-1",
        "topology.kubernetes.io/zone": "local-1a",
        RACK: f"rack-{rack:02d}",
        BLOCK: f"block-{rack // RACKS_PER_BLOCK:02d}",
        "feature.node.kubernetes.io/cpu-model.vendor_id": kind.cpu_vendor,
        "feature.node.kubernetes.io/memory-numa": "true",
    }


def _gpu_labels(kind: Machine, gpus: int) -> dict[str, str]:
    major, minor = kind.compute.split(".")
    return {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": str(kind.product),
        "nvidia.com/gpu.count": str(gpus),
        "nvidia.com/gpu.memory": str(kind.memory_mib),
        "nvidia.com/gpu.family": kind.family,
        "nvidia.com/gpu.compute.major": major,
        "nvidia.com/gpu.compute.minor": minor,
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/mig.capable": "true",
        "feature.node.kubernetes.io/rdma.capable": "true",
        "feature.node.kubernetes.io/rdma.available": "true",
        "feature.node.kubernetes.io/pci-10de.present": "true",
        "feature.node.kubernetes.io/pci-15b3.present": "true",
        "network.nvidia.com/operator.mofed.wait": "false",
    }


def _info() -> dict[str, str]:
    unknown = dict.fromkeys(("machineID", "systemUUID", "bootID", "kubeProxyVersion"), "")
    return {
        **unknown,
        "architecture": "amd64",
        "operatingSystem": "linux",
        "osImage": "simulated by kwok",
        "kernelVersion": "simulated",
        "containerRuntimeVersion": "kwok://simulated",
        "kubeletVersion": f"v{KUBERNETES}",
    }
