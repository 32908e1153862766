"""Objects that people are about to apply, tried on the API server first: what it refuses, in sentences."""

import re
from collections.abc import Collection, Iterable

from ome_operator.cache.resources import BENCHMARK, CATALOG, SERVICE, SHORT
from ome_operator.cli.live.cluster_from_manifests import ref
from ome_operator.core.observed.objects import Manifest
from ome_operator.kube.client import Client
from ome_operator.kube.errors import Forbidden, Invalid, KubeError, NotServed, ServerError

WRITTEN = frozenset((SERVICE, *CATALOG, *SHORT, BENCHMARK))
"""Kinds that people apply."""
RIGHTS = "cannot patch resource"
"""In the API server's words when it is the person, not the object, that may not."""
_UNKNOWN = re.compile(r"\.([^\s:]+): field not declared in schema")
_NO_NAMESPACE = re.compile(r'namespaces "[^"]*" not found')
_SOME = "default"
"""A namespace that every cluster has."""


async def refused(client: Client, given: Iterable[Manifest], made: Collection[str]) -> tuple[str, ...]:
    """A sentence for each object that the API server would not take; `made`: namespaces that come with them."""
    said = [await _tried(client, body, made) for body in given if ref(body).kind in WRITTEN]
    return tuple(dict.fromkeys(filter(None, said)))


async def _tried(client: Client, body: Manifest, made: Collection[str], namespace: str = "") -> str:
    """What is said to a dry run of this object, "" when it is taken, or where this person may not try."""
    which, metadata = ref(body), body["metadata"]
    own = {name: metadata[name] for name in ("name", "namespace", "labels", "annotations") if metadata.get(name)}
    inside = {"namespace": namespace} if namespace else {}
    fields = {name: value for name, value in body.items() if name != "status"}
    try:
        await client.apply({**fields, "metadata": {**own, **inside}}, dry_run=True)
    except NotServed as error:
        if not _NO_NAMESPACE.search(str(error)):
            return ""
        if which.namespace in made:
            return await _tried(client, body, (), _SOME)
        return f"namespace {which.namespace} does not exist: make it, or name another"
    except Forbidden as error:
        return "" if RIGHTS in str(error) else f"{which.kind} {which.name}: {error}"
    except (Invalid, ServerError) as error:
        return f"{which.kind} {which.name}: {_words(error)}"
    return ""


def _words(error: KubeError) -> str:
    """The API server's words, or what they mean where they are hard to read. Raises what says nothing about the object."""
    unknown = list(dict.fromkeys(_UNKNOWN.findall(str(error))))
    if unknown:
        fields = f"{', '.join(unknown)} is no field" if len(unknown) == 1 else f"{', '.join(unknown)} are no fields"
        return f"{fields}: `kubectl explain` shows those that there are"
    if isinstance(error, ServerError):
        raise error
    return str(error)
