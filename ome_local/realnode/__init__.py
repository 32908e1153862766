"""The real node of a cluster: a kubelet with containerd on this machine, in its own namespaces, without Docker.

containerd, kubelet, kube-proxy and CoreDNS share one network and one mount namespace, so bridges, packet rules, mounts and
the built-in folders of these programs belong to the node alone. Several nodes can run at the same time, the machine is not
changed, and everything disappears with the last process.
"""
