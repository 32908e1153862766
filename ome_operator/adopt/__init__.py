"""Take over a cluster that OME has managed (decisions 24): first its CRDs, webhooks and finalizers, then one service
after another.
"""
