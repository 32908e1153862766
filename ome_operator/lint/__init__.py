"""Rules that find, before a service is applied, why it would not start, would answer wrongly or would waste GPUs.

The package is pure. A rule checks a subject, which is a service in the form in which the operator would run it. A finding
states what is wrong and what to do.
"""
