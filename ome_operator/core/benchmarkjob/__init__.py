"""A BenchmarkJob: its Job, traffic, results and status."""
