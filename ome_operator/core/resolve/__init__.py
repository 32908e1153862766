"""Resolve the names in a service to the inputs of its revision, or to the problems that prevent that."""
