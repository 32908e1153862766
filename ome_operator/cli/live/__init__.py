"""What the commands ask: facts from files or a live cluster, for the pure side to say what they mean."""
