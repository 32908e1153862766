"""The model agent: one process per node that downloads weights, verifies every byte, and reports the state of each model.

The modules `download_plan`, `node_selection` and `record` are pure functions. `store` reads and writes the disk, the package
`storage` the network, and `file_download` downloads a single file. `download` and `verify` do the work on one model; `loop`
runs the process.
"""
