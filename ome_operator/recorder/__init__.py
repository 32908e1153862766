"""The flight recorder: the inputs and decisions of the last passes over a service, in bounded memory and as a file.

`sync` is pure, so that its inputs are sufficient for a replay (docs/recorder.md, decisions 33). The package is pure; the
caller writes the file.
"""
