"""Texts and views for users. They describe the state of a service, the effect of an edit, and why a service is not ready.
All functions are pure.
"""
