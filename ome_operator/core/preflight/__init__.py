"""The preflight check, which checks a node before an engine starts on it: its mode, container, results and status
(docs/preflight.md).
"""
