"""Hubs, object stores and OCI registries, with proof of every byte."""
