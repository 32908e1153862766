"""Capacity checks: whether the nodes of a cluster can hold the pods of a service, and which services are admitted to the
nodes (docs/placement.md, decisions 10).
"""
