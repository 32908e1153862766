"""Small helpers: YAML as Kubernetes reads it, bounds of JSON, the format of log lines. No word of our domain."""
