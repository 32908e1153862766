"""`make bench` measures the cost of the operator, next to the cost of creating the same objects without it. The module is
run as `python -m bench`.

All measurements run on local clusters with simulated nodes, which this process creates and removes. Both sides of a
comparison run alternately, each on a new cluster, so that ratios within a run are meaningful even if absolute times are not.
"""
