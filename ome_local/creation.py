"""Create the files of a new cluster: ports, keys, certificates and kubeconfigs."""

import contextlib

from ome_local import keda, kubeconfig, ports, stages
from ome_local.components import AUDIT_POLICY, FORWARDER, IDENTITIES, PORTS
from ome_local.layout import Layout
from ome_local.pki import Authority, service_account_key
from ome_local.realnode import namespaces
from ome_local.realnode.spec import IDENTITIES as NODE_IDENTITIES
from ome_local.realnode.spec import Network
from ome_local.spec import ClusterFile, Spec, load, save
from ome_operator.errors import UserError


def create(at: Layout, spec: Spec) -> ClusterFile:
    """Write all files that a control plane needs before its first start. cluster.json is written last, because it marks
    the cluster as complete.
    """
    at.make()
    chosen = dict(zip(PORTS, ports.choose(len(PORTS), ports.of_clusters(at.root.parent)), strict=True))
    kept = ClusterFile(spec, chosen, namespaces.choose(at, _numbers(at)) if spec.real_node else None)
    write_stages(at, spec)
    if not spec.kind:
        authority = Authority(at.pki)
        authority.server("server", [kept.network.host, kept.network.service_ip] if kept.network else ())
        service_account_key(at.pki)
        _guard_etcd(at)
        Authority(at.front_pki).client(FORWARDER, FORWARDER)
        authority.member(keda.CERTIFICATE, keda.SERVED_AS)
        for file, (user, groups) in IDENTITIES.items():
            authority.client(file, user, groups)
            kubeconfig.with_certificate(
                at.kubeconfig if file == "admin" else at.component_kubeconfig(file),
                name=f"ome-{at.root.name}",
                server=server(kept),
                pki=at.pki,
                user=file,
            )
        if kept.network:
            _identify_node(at, kept, authority, kept.network)
        at.audit_policy.write_text(AUDIT_POLICY)
    save(at, kept)
    return kept


def _guard_etcd(at: Layout) -> None:
    """Write the certificates of etcd and of its only client, signed by a separate certificate authority. The cluster's
    own authority is not suitable, because the controller-manager signs other certificates with it.
    """
    authority = Authority(at.etcd_pki)
    authority.member("member")
    authority.client("apiserver", "apiserver")


def _identify_node(at: Layout, cluster_file: ClusterFile, authority: Authority, network: Network) -> None:
    """Write a client certificate and a kubeconfig for each program of the node, and the kubelet's server certificate. The
    kubeconfigs use the API server's address for pods.
    """
    for file, (user, groups) in NODE_IDENTITIES.items():
        authority.client(file, user, groups)
        address = f"https://{network.host}:{cluster_file.ports['apiserver']}"
        kubeconfig.with_certificate(
            at.component_kubeconfig(file), name=f"ome-{at.root.name}", server=address, pki=at.pki, user=file
        )
    authority.server("kubelet-server", [network.gateway])


def _numbers(at: Layout) -> set[int]:
    """Return the network numbers that other clusters of this home have reserved."""
    found: set[int] = set()
    for file in at.root.parent.glob("*/cluster.json"):
        with contextlib.suppress(UserError):
            other = load(Layout(file.parent))
            found |= {other.network.number} if other and other.network else set()
    return found


def server(cluster_file: ClusterFile, port: str = "apiserver") -> str:
    """Return the address of the API server."""
    return f"https://127.0.0.1:{cluster_file.ports[port]}"


def write_stages(at: Layout, spec: Spec, *more: stages.Stage) -> None:
    """Write the Stages of simulated pods and nodes. kwok reads them when it is started the next time. With Kueue, which
    adds finalizers to pods, deleted pods keep their finalizers.
    """
    usual = stages.defaults(spec.start_delay_s, keeps_finalizers=spec.kueue)
    kubeconfig.write_atomically(at.stages, stages.config([*usual, *more]))
