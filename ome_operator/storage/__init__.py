"""Clients of hubs, object stores and OCI registries that verify every byte."""
