"""`make bench`: what the operator costs, beside the bare cost of the very objects that it creates. Run as `python -m bench`.

Everything happens on local clusters with simulated nodes that this process makes and removes. Both sides of a comparison
run in turn, each on a fresh cluster, so ratios within one run mean something even where seconds do not.
"""
