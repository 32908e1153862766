"""Freeze and observe mode: whether a service is held, and which effects of a plan are carried out while it is held
(docs/observe-freeze.md).
"""
