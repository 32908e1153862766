"""The Kubernetes API, as far as the operator needs it: plain dicts in and out, server-side apply, a small error tree."""

from ome_operator.kube.library import spare

spare("kubernetes")
spare("kubernetes.aio")
