"""A Kubernetes cluster on one machine: `ome local` and `ome demo`. Beside the operator, and in no image of it."""
