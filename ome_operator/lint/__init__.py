"""Rules that find, before a service is applied, why it cannot start, would answer wrongly or would waste GPUs.

The package is pure. A subject is a service as the operator would run it, a rule checks a subject, and a finding states what
is wrong and what to do.
"""
