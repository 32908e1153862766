"""`ome plan`: from the lengths of requests to nodes, tokens a second, seconds and a price. docs/sizing.md has the method."""
