"""State of placement between reconciliations: capacity, admission of gangs, and release of nodes, over all services
(docs/placement.md).
"""
