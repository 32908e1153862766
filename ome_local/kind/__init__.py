"""The same cluster with kind's control plane and nodes, for people with Docker (and for every machine that is not Linux).

Simulated nodes are the same: kwok runs as a process of ours against kind's API server. Kind's own nodes are the real ones:
they have the label of real nodes, and see the cluster's folder of models as /var/lib/ome/models.
"""
