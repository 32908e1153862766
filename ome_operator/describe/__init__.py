"""What people look at: how a service stands, what it would come to, what an edit would change. Pure."""
