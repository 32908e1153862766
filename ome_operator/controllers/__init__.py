"""One key in, effects out: the only side of the operator that writes to the cluster."""
