"""The flight recorder: what the last passes over a service saw and decided, in bounded memory and as a file.

`sync` is pure, so its inputs are all that a replay needs (docs/recorder.md, decisions 33). Pure; who asks writes the file.
"""
