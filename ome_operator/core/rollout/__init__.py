"""Compute the next safe step from the old slice of a service to the new one. Stateless between steps."""
