"""The check that runs in the init container of engine pods before the engine starts (docs/preflight.md)."""
