"""Where pods find a model's files, and which nodes hold them."""
