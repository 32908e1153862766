"""Recipes of `ome generate`: they map hardware, a model and a strategy to the launch command and the manifests that serve
the model.

The package is pure. `library` contains the known models, hardware and engines, `layout` computes sizes and rejects
impossible requests, `preset` renders a sandboxed template, and `command` and `manifests` write the output.
"""
