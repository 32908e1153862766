"""What the operator knows of the cluster, from watches and its own writes, and which keys a change makes dirty."""
