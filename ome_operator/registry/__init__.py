"""The worker registry: a sidecar that keeps a router's worker list equal to the groups that can serve.

`reconcile` decides, without I/O; `pods` reads what the API server lists; `clients` talk to both servers; `loop` runs.
"""
