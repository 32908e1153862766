"""`ome demo`: Kimi K2 on simulated nodes, and real tokens where the machine can have a real node."""
