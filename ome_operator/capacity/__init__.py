"""The memory that a model needs on each GPU, and whether its parts divide evenly over GPUs.

`ome lint`, `ome generate` and `ome plan` all ask this package, so that no two of them can disagree. Pure: `model` is what is
known of a model, `shape` how GPUs share it, `memory` the bytes of a GPU, `division` what must divide.
"""
