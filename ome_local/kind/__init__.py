"""The cluster with kind's control plane and nodes, for users with Docker and for machines that do not run Linux.

Simulated nodes are the same: kwok runs as a process of this package against kind's API server. Kind's own nodes are the real
nodes: they have the label of real nodes, and see the cluster's folder of models as /var/lib/ome/models.
"""
