"""The kinds of sglang.ai, which are short forms of kinds of ome.io: the objects of ome.io that are created for them, and
their statuses.
"""
