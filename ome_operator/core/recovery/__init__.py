"""Recovery of failed groups as a whole: which pods are deleted when a rank is lost or hangs, and when no pod is deleted
(decisions 8).
"""
