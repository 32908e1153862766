"""The memory that a model needs on each GPU, and whether its parts divide evenly over GPUs.

`ome lint`, `ome generate` and `ome plan` all use this package, so their results are always the same. The package is pure.
`model` contains the facts of a model, `shape` the parallel sizes of an engine, `memory` the computation of bytes on a GPU,
and `division` the divisibility checks.
"""
