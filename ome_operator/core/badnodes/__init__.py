"""Failures that are remembered by node, and the nodes that are avoided because of them (docs/bad-nodes.md)."""
