"""Render the Job of a BenchmarkJob with its traffic and storage, and build the status of the BenchmarkJob."""
