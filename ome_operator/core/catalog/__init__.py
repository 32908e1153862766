"""Statuses of models, runtimes and accelerator classes, and which labels nodes carry for the models that they hold."""
