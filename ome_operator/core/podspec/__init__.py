"""Pod specs as people write them: merged, checked, and in the API server's spelling."""
