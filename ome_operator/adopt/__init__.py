"""Take over a cluster that OME has managed (decisions 24): its CRDs, webhooks and finalizers, then one service after the
other.
"""
