"""Recipes of `ome generate`: from hardware, a model and a strategy to the launch command and the manifests that serve the
model.

The package is pure: `library` has the known models, hardware and engines, `layout` computes sizes and rejects impossible
requests, `preset` fills a sandboxed template, `command` and `manifests` write the output.
"""
