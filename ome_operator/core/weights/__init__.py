"""Locate the files of a model on nodes, mount them in pods, and determine which nodes have them."""
