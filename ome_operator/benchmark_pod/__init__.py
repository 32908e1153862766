"""The programs in the pod of a BenchmarkJob. core/benchmarkjob/job.py describes how the containers of the pod work
together.
"""
