"""What people look at: how a service stands, what an edit would change, and why something is not ready. Pure."""
