"""The programs in the pod of a BenchmarkJob; core/benchmarkjob/job.py describes how its containers work together."""
