"""The configuration files of the node's programs. Pure functions of the facts about the node. The files are JSON, which
is valid YAML and needs no library.
"""

import json
from typing import Any

from ome_local.realnode.spec import PAUSE, TAINT, RealNode, link_name

_RESERVED = 4
"""Divisor of the memory of the machine. The result of the division is reserved for the machine itself, including the
control plane and the operator. The pods of the node can use the rest."""


def files(node: RealNode, plugins: str, memory: int) -> dict[str, str]:
    """Return a map from file name to content, for every configuration file. `plugins` is the folder of the CNI plugins, and
    `memory` is the memory of the machine in bytes.
    """
    return {
        "containerd.toml": containerd(node, plugins),
        "net.d/10-pods.conflist": json.dumps(cni(node)),
        "kubelet.yaml": json.dumps(kubelet(node, memory), indent=2),
        "kube-proxy.yaml": json.dumps(kube_proxy(node), indent=2),
        "Corefile": corefile(node),
        "resolv.conf": "",
    }


def containerd(node: RealNode, plugins: str) -> str:
    """Return containerd's configuration in version 2 of the format, which containerd 1.6 and 2.x can read. All default
    paths are replaced by paths in the node's folders.
    """
    return f"""\
version = 2
root = "{node.images}"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{node.images}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{node.config}/net.d"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{node.registries}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"""


def cni(node: RealNode) -> dict[str, Any]:
    """Return the CNI configuration, in which all pods are on one bridge. The first and last addresses are reserved for
    the node and the machine.
    """
    start, end = (node.gateway.rpartition(".")[0] + last for last in (".10", ".250"))
    addresses = [[{"subnet": node.pods, "rangeStart": start, "rangeEnd": end, "gateway": node.gateway}]]
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": addresses, "routes": [{"dst": "0.0.0.0/0"}]},
    }
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}


def kubelet(node: RealNode, memory: int) -> dict[str, Any]:
    """Return the kubelet's configuration. With this configuration, the kubelet needs neither the capability to raise limits
    nor systemd. It evicts pods only if resources are nearly exhausted. All pods together may use the memory of the
    machine (`memory`, in bytes) less a reserve, so that a pod without a memory limit cannot take the memory of the
    control plane.
    """
    pki = node.at.pki
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pki / "kubelet-server.crt"),
        "tlsPrivateKeyFile": str(pki / "kubelet-server.key"),
        "address": node.gateway,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{link_name(node.at.root)}",
        "enforceNodeAllocatable": ["pods"],
        "systemReserved": {"memory": f"{memory // _RESERVED // 1024}Ki"},
        "failSwapOn": False,
        "failCgroupV1": False,
        "oomScoreAdj": 0,
        "maxOpenFiles": 20000,
        "makeIPTablesUtilChains": False,
        "clusterDNS": [node.gateway],
        "clusterDomain": "cluster.local",
        "resolvConf": str(node.config / "resolv.conf"),
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "100Mi"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "serializeImagePulls": False,
        "syncFrequency": "10s",
        "nodeStatusReportFrequency": "10s",
        "registerWithTaints": [TAINT],
    }


def kube_proxy(node: RealNode) -> dict[str, Any]:
    """Return kube-proxy's configuration. All traffic is masqueraded, so that responses return through the node, whether
    or not the bridge passes them to netfilter.
    """
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "nftables": {"masqueradeAll": True},
        "bindAddress": node.gateway,
        "hostnameOverride": node.name,
        "oomScoreAdj": 0,
        "clientConnection": {"kubeconfig": str(node.at.component_kubeconfig("kube-proxy"))},
        "conntrack": {"maxPerCore": 0, "min": 0},
    }


def corefile(node: RealNode) -> str:
    """Return CoreDNS' configuration. CoreDNS answers only for names of the cluster, because pods cannot reach other
    networks. The file has two blocks, because in a single block `template` would answer before `kubernetes`.
    """
    return f"""\
cluster.local in-addr.arpa {{
  bind {node.gateway}
  errors
  ready {node.gateway}:8181
  cache 5
  kubernetes {{
    kubeconfig "{node.at.component_kubeconfig("coredns")}" ome-{node.at.root.name}
    ttl 5
  }}
}}
. {{
  bind {node.gateway}
  template ANY ANY {{
    rcode NXDOMAIN
  }}
}}
"""
