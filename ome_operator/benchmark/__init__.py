"""What runs in the pod of a BenchmarkJob; render/benchmark.py says how its containers fit together."""
