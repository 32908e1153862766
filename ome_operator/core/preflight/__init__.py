"""The check of nodes before an engine starts: its mode, container, results and status (docs/preflight.md)."""
