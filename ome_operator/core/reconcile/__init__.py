"""A reconciliation pass over a service: `sync` computes a `Plan` of writes and deletions from a `Snapshot` of what
exists.
"""
