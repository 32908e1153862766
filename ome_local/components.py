"""Command lines of the control plane's components. All functions are pure functions of the directory, the ports and the
options.
"""

from pathlib import Path

from ome_local.layout import Layout
from ome_local.pki import SERVICE_IP
from ome_local.spec import ClusterFile

SERVERS = ("etcd", "apiserver", "controller-manager", "scheduler", "kwok", "tokens")
"""Short names of the processes, in the order in which they are started. Log files and process files are named after them."""
PROGRAMS = {
    "etcd": "etcd",
    "apiserver": "kube-apiserver",
    "controller-manager": "kube-controller-manager",
    "scheduler": "kube-scheduler",
    "kwok": "kwok",
}
PORTS = (
    "etcd", "etcd-peer", "apiserver", "apiserver-2", "controller-manager", "scheduler", "operator", "operator-metrics",
    "prometheus", "kueue", "kueue-health", "keda", "keda-adapter", "keda-health",
)  # fmt: skip
"""Names of the ports of a cluster. The ports of the operator are for an operator that the demo or a test starts on this
machine."""
IDENTITIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "admin": ("admin", ("system:masters",)),
    "controller-manager": ("system:kube-controller-manager", ()),
    "scheduler": ("system:kube-scheduler", ()),
    "kwok": ("kwok", ()),
    "prometheus": ("prometheus", ()),
    "kueue": ("kueue", ()),
    "keda": ("keda", ()),
}
"""Maps the file name of a client certificate to (user, groups). Each component has its own user, so that the audit log
distinguishes the components."""
POWERFUL = ("system:kube-controller-manager", "kwok", "kueue", "keda")
"""Users that are bound to cluster-admin. They are not members of system:masters, because that group is exempt from API
priority and fairness."""
AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  nonResourceURLs: ["/readyz*", "/livez*", "/healthz*"]
- level: Metadata
"""
SLOW_NODES = "1h"
"""Time without heartbeats after which a simulated node is not ready any more. The time is long because heartbeats are
late on a busy machine. After a node was not ready, kwok does not make the pods of the node Ready again."""


def etcd(at: Layout, cluster_file: ClusterFile) -> list[str]:
    """Return the command line of a single etcd member on the loopback interface. Because every user of this machine can
    connect, etcd requires the API server's client certificate.

    fsync is disabled, because the data is removed with the cluster. HTTP has its own unused port: on a shared port, gRPC
    requests would pass through Go's HTTP server, which costs a fifth more.
    """
    client, peer = (f"https://127.0.0.1:{cluster_file.ports[name]}" for name in ("etcd", "etcd-peer"))
    pki = at.etcd_pki
    return [
        f"--data-dir={at.etcd}",
        f"--listen-client-urls={client}",
        "--listen-client-http-urls=https://127.0.0.1:0",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        f"--cert-file={pki / 'member.crt'}",
        f"--key-file={pki / 'member.key'}",
        f"--trusted-ca-file={pki / 'ca.crt'}",
        "--client-cert-auth",
        f"--peer-cert-file={pki / 'member.crt'}",
        f"--peer-key-file={pki / 'member.key'}",
        f"--peer-trusted-ca-file={pki / 'ca.crt'}",
        "--peer-client-cert-auth",
        "--unsafe-no-fsync",
        "--quota-backend-bytes=8589934592",
        "--log-level=warn",
    ]


def apiserver(at: Layout, cluster_file: ClusterFile, port: int, audit_log: Path) -> list[str]:
    """Return the command line of an API server with the usual authorizers, admission plugins, and priority and fairness."""
    service_ip = cluster_file.network.service_ip if cluster_file.network else SERVICE_IP
    pki = at.pki
    audit = [
        f"--audit-policy-file={at.audit_policy}",
        f"--audit-log-path={audit_log}",
        "--audit-log-maxsize=1000000",  # in megabytes; 0 would mean 100, and would drop the oldest lines
    ]
    return [
        f"--etcd-servers=https://127.0.0.1:{cluster_file.ports['etcd']}",
        f"--etcd-cafile={at.etcd_pki / 'ca.crt'}",
        f"--etcd-certfile={at.etcd_pki / 'apiserver.crt'}",
        f"--etcd-keyfile={at.etcd_pki / 'apiserver.key'}",
        *_reached_at(at, cluster_file, port),
        f"--secure-port={port}",
        f"--tls-cert-file={pki / 'server.crt'}",
        f"--tls-private-key-file={pki / 'server.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--service-account-key-file={pki / 'sa.pub'}",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-cluster-ip-range={service_ip.rpartition('.')[0]}.0/16",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        f"--kubelet-client-certificate={pki / 'admin.crt'}",
        f"--kubelet-client-key={pki / 'admin.key'}",
        *(audit if cluster_file.spec.audit else []),
        *(_forwards(at) if "keda" in cluster_file.ports else []),
    ]


FORWARDER = "front-proxy-client"
"""User name with which the API server authenticates to aggregated API servers (such as KEDA's metrics server) when it
forwards requests to them.
"""


def _forwards(at: Layout) -> list[str]:
    """Return the arguments with which the API server forwards requests to aggregated API servers, and passes on the name of
    the user. Clusters of earlier versions of this package have no certificate for this.
    """
    return [
        f"--proxy-client-cert-file={at.front_pki / f'{FORWARDER}.crt'}",
        f"--proxy-client-key-file={at.front_pki / f'{FORWARDER}.key'}",
        f"--requestheader-client-ca-file={at.front_pki / 'ca.crt'}",
        f"--requestheader-allowed-names={FORWARDER}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    ]


def _reached_at(at: Layout, cluster_file: ClusterFile, port: int) -> list[str]:
    """Return the arguments about addresses. Without a real node, the API server listens on loopback only. With a real
    node, the arguments also contain the address at which pods reach the Service `kubernetes`, and how the API server
    reaches the kubelet.
    """
    if cluster_file.network is None:
        nowhere = "--endpoint-reconciler-type=none"  # Endpoints must not contain loopback addresses
        return ["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", nowhere]
    is_first = port == cluster_file.ports["apiserver"]
    return [
        "--bind-address=0.0.0.0",
        f"--advertise-address={cluster_file.network.host}",
        # both API servers have the same address, and Endpoints contain only one port for an address
        f"--endpoint-reconciler-type={'lease' if is_first else 'none'}",
        f"--kubelet-certificate-authority={at.pki / 'ca.crt'}",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def controller_manager(at: Layout, cluster_file: ClusterFile) -> list[str]:
    """Return the command line of the controller-manager with all controllers that need neither a cloud nor a pod network.
    The option `fast` disables the controllers of Endpoints, which no component reads here and which cause a twentieth
    of all requests.
    """
    pki = at.pki
    fast = ["--concurrent-statefulset-syncs=20", "--concurrent-gc-syncs=20"]
    slow = ",-endpoints-controller,-endpointslice-mirroring-controller"
    return [
        *_client(at, cluster_file, "controller-manager"),
        f"--service-account-private-key-file={pki / 'sa.key'}",
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--cluster-signing-cert-file={pki / 'ca.crt'}",
        f"--cluster-signing-key-file={pki / 'ca.key'}",
        "--use-service-account-credentials=false",
        f"--controllers=*,-node-ipam-controller{slow if cluster_file.spec.fast else ''}",
        f"--node-monitor-grace-period={SLOW_NODES}",
        *(fast if cluster_file.spec.fast else []),
    ]


def scheduler(at: Layout, cluster_file: ClusterFile) -> list[str]:
    """Return the arguments of the default scheduler."""
    return _client(at, cluster_file, "scheduler")


def kwok(at: Layout, kubeconfig: Path) -> list[str]:
    """Return the command line of kwok, which simulates the kubelets of annotated nodes only.

    Node leases are disabled, because a restarted kwok would wait until the leases of its predecessor expire. This package's
    node stages send heartbeats instead.
    """
    return [
        f"--kubeconfig={kubeconfig}",
        f"--config={at.stages}",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--node-lease-duration-seconds=0",
    ]


def _client(at: Layout, cluster_file: ClusterFile, name: str) -> list[str]:
    """Return the arguments that controller-manager and scheduler share."""
    kubeconfig = at.component_kubeconfig(name)
    limits = ["--kube-api-qps=500", "--kube-api-burst=1000"]
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={cluster_file.ports[name]}",
        f"--tls-cert-file={at.pki / 'server.crt'}",
        f"--tls-private-key-file={at.pki / 'server.key'}",
        "--leader-elect=false",
        *(limits if cluster_file.spec.fast else []),
    ]
