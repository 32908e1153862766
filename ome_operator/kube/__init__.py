"""The Kubernetes API, as far as the operator needs it: plain dicts in and out, server-side apply, a small error tree."""
