"""`ome demo`: serves Kimi K2 on simulated nodes, and returns real tokens if the machine can run a real node."""
