"""Merge the pod specs of runtime and service, validate them, and convert them to the form in which the API server stores
them.
"""
