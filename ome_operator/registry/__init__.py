"""The registry: a sidecar of a router that keeps the router's worker list equal to the groups that can serve requests.

`reconcile` calculates the changes without I/O, with the types of `records`; `pods` parses the API server's list of pods;
`clients` contains the clients of the API server and the router. `exposition` parses metrics pages, `telemetry` calculates
the summary of what engines do, `silence` decides which engines no longer respond, and `telemetry_reader` reads the metrics
of engines and probes them. `loop` runs the process.
"""
