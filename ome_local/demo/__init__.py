"""`ome demo`: serve Kimi K2 on simulated nodes, and generate real tokens if the machine can run a real node."""
