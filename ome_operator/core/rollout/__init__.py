"""Which slices of a service exist, and the next safe step from the old one to the new one. Pure and stateless."""
