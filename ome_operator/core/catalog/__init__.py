"""Build the statuses of models, runtimes and accelerator classes, and the labels of nodes that have models."""
