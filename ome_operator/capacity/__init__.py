"""The memory that a model needs on each GPU, and whether its parts divide evenly over GPUs.

`ome lint`, `ome generate` and `ome plan` all use this package, so their results cannot disagree. The package is pure:
`model` has the facts of a model, `shape` how GPUs share it, `memory` the bytes on a GPU, `division` the divisibility checks.
"""
