"""The next safe step from the old slice of a service to the new one. Nothing is remembered between two steps."""
