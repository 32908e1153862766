"""Texts and views for users: the state of a service, the effect of an edit, and why something is not ready. Pure
functions.
"""
