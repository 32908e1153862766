"""The key of an object in, effects out. Reconcilers, and the manager that runs them."""
