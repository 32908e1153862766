"""What the cluster tells, told to a `Sink`.

kopf hosts the operator and watches what people write (`handlers.py`, set up by `tuning.py`: nothing else imports kopf).
Pods, workloads, nodes and records come by lists and watches of our own (`informer.py`).
"""
