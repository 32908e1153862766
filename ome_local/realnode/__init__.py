"""The real node of a cluster: a kubelet with containerd on this machine, in namespaces of its own, without Docker.

Containerd, kubelet, kube-proxy and CoreDNS share one network and one mount namespace. So bridges, packet rules, mounts and
the folders that these programs have built in are the node's alone: several nodes stand side by side, nothing of the machine
is touched, and all of it vanishes with the last process.
"""
