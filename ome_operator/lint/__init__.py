"""Before 128 GPUs move: what of a service cannot start, starts and answers wrongly, or wastes what it has.

Pure: a subject is a service as the operator would run it, rules look at subjects, findings say what is wrong and what to do.
"""
