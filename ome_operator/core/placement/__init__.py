"""Whether the nodes of a cluster can hold what a service needs, and whose turn it is (docs/placement.md, decisions 10)."""
