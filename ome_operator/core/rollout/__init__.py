"""Compute the next safe step from the old slice of a service to the new slice. No state is kept between the steps."""
