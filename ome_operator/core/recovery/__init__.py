"""Recover failed groups as a whole: determine which pods are deleted when a rank is lost or hangs, and when no pod is
deleted (decisions 8).
"""
