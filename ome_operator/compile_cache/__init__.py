"""The program that copies a compile cache into a pod before its engine starts, and hands the engine's cache to the node's
agent when the engine serves (docs/compile-caches.md).
"""
