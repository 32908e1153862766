"""A cluster with kind's control plane and nodes, for users with Docker and for machines that do not run Linux.

Simulated nodes are the same as in other clusters: kwok runs as a process of this package and uses kind's API server. Kind's
own nodes are the real nodes: they have the label of real nodes, and the cluster's folder of models is /var/lib/ome/models on
them.
"""
