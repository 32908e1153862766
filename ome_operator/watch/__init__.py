"""Watch the cluster, and deliver the state of its objects to a `Sink`.

kopf hosts the operator and watches the kinds that people write (`handlers.py`, configured by `tuning.py`; no other module
imports kopf). Pods, workloads, nodes and NodeModels records are listed and watched by the operator itself (`informer.py`).
"""
