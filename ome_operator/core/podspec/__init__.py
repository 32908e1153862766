"""Pod specs as people write them: runtime and service merged, checked, and in the API server's spelling."""
