"""A BenchmarkJob: its Job, its traffic, its results and its status."""
