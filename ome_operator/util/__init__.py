"""Small helpers without domain terms: YAML as Kubernetes reads it, limits for JSON, the format of log lines."""
