"""Compact representations of cluster objects, built from the JSON that the API server returns."""
