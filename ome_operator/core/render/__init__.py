"""Manifests of everything that a service gets. Fresh dicts with only the fields that we own, in canonical spelling."""
