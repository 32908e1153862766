"""Small helpers that have no terms of this project: YAML as Kubernetes parses it, limits for JSON, the format of log
lines.
"""
