"""Taking over a cluster where OME has run (decisions 24): its CRDs, webhooks and finalizers, then service by service."""
