"""In-memory cache of the cluster, filled by watches and by the operator's own writes, and the keys that a change
enqueues.
"""
