"""Reconcilers, and the manager that runs them. A reconciler receives the key of an object, and changes the cluster."""
