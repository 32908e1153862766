"""The flight recorder: keeps the inputs and decisions of the last reconciliation passes of each service in limited
memory, and writes them to a file.

`sync` is a pure function, so its inputs are sufficient to replay a pass (docs/recorder.md, decisions 33). The package does
no I/O; the caller writes the file.
"""
