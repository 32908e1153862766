"""The real node of a cluster: a kubelet with containerd on this machine, in separate namespaces, without Docker.

containerd, kubelet, kube-proxy and CoreDNS share one network namespace and one mount namespace. Bridges, packet rules,
mounts and the built-in folders of these programs therefore belong to the node alone. Several nodes can run at the same time,
the machine is not changed, and everything disappears with the last process.
"""
