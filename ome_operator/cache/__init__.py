"""What the operator knows of the cluster, kept from watches, and which keys a change makes dirty."""
