"""Simulate how a service follows its demand, with measured service times and the real decision (docs/demand.md)."""
