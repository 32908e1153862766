"""The directory on a node through which pods exchange compile caches with the agent (docs/compile-caches.md)."""

from posixpath import join

from ome_operator.core.weights.mount import NAMESPACES

FOLDER = ".compile"
"""Directory of a namespace, next to its weights. It contains a directory for each set of pods with the same compile
cache."""
DIGITS = 32
"""Number of hexadecimal digits in the name of such a directory, and in the digest of a node's hardware."""
SOCKET = "agent.sock"
"""Name of the agent's socket in such a directory. Pods mount the directory read-only."""


def directory(root: str, namespace: str, digest: str) -> str:
    """Return the directory below `root` for the pods of the namespace `namespace` whose cache has the digest `digest`."""
    return join(root, NAMESPACES, namespace, FOLDER, digest)
