"""The model agent: one process per node that downloads weights, verifies every byte, and reports the state of each model.

The modules `download_plan` and `record` are pure functions. The module `store` reads and writes the disk;
the package `storage` accesses the network. `file_download` downloads a single file, `download` a complete model; `verify`
checks the files of a model again. `loop` runs the process.
"""
