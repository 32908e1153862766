"""Reads from a live cluster the objects that services share: runtimes, models and accelerator classes."""

from ome_operator.cache.resources import ACCELERATORS, MODELS, RUNTIMES
from ome_operator.kube.client import Client, Manifest
from ome_operator.kube.errors import NotFound

KINDS = {"runtime": RUNTIMES, "model": MODELS, "acceleratorclass": ACCELERATORS}
"""Maps a word on the command line to kinds; the cluster-scoped kind comes first."""


async def find_shared_object(client: Client, word: str, namespace: str, name: str) -> Manifest | None:
    """Return the shared object to which services in the namespace `namespace` refer by the name `name`. `word` names the
    kind of the object. An object in the namespace takes precedence over a cluster-scoped object. Return None if neither
    exists.
    """
    everywhere, *own = KINDS[word]
    for kind, where in (*((kind, namespace) for kind in own), (everywhere, "")):
        try:
            return await client.get(kind, where, name)
        except NotFound:
            continue
    return None
