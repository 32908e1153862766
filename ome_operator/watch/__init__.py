"""What the cluster tells. kopf hosts the operator and watches what people write (`handlers.py`, the only module that imports
kopf); pods, workloads, nodes and records come by lists and watches of our own (`informer.py`). Both tell a `Sink`.
"""
