"""The model agent: one process per node that fetches weights, proves every byte, and reports.

`steps`, `nodes` and `record` are pure; `store` is the disk, the package `storage` the network, `fetching` one file;
`download` and `verify` are the work, `loop` the process.
"""
