"""Preflight: what runs before an engine, in its own pod and image (docs/preflight.md)."""
