"""`ome plan`: computes nodes, tokens per second, latency and price of a service from the lengths of its requests.
docs/sizing.md describes the method.
"""
