"""Statuses of models, runtimes and accelerator classes."""
