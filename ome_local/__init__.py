"""A Kubernetes cluster on one machine: `ome local` and `ome demo`. The package is shipped with the operator's source, and is
in no image of it.
"""
