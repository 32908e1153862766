"""Building blocks of any operator: a work queue, stores, resync, metrics and health endpoints. The package does not
depend on this operator's kinds of objects.
"""
