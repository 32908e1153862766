"""What exists on the cluster, as slim facts made from bodies of the API server."""
