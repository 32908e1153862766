"""Decide how many prefill groups, decode groups and routers a service needs for its demand (docs/demand.md)."""
