"""A reconciliation pass over a service: `sync` turns a `Snapshot` of what exists into a `Plan` of what to do."""
