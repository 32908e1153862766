"""Building blocks of any operator: a work queue, stores, resync, metrics and health endpoints. Nothing here depends on
our domain.
"""
