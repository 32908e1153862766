"""Objects that services share, read from a live cluster."""

from ome_operator.cache.resources import ACCELERATORS, MODELS, RUNTIMES
from ome_operator.kube.client import Client, Manifest
from ome_operator.kube.errors import NotFound

KINDS = {"runtime": RUNTIMES, "model": MODELS, "acceleratorclass": ACCELERATORS}
"""Word of a command -> kinds, that of the whole cluster first."""


async def found(client: Client, word: str, namespace: str, name: str) -> Manifest | None:
    """The object that services of a namespace mean by this name: their own before that of the cluster."""
    everywhere, *own = KINDS[word]
    for kind, where in (*((kind, namespace) for kind in own), (everywhere, "")):
        try:
            return await client.get(kind, where, name)
        except NotFound:
            continue
    return None
