"""What runs in the pod of a BenchmarkJob; core/benchmarkjob/job.py says how its containers fit together."""
