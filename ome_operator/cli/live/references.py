"""Finds the references of the objects in files that name no object."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ome_operator.api import Object
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.resources import BENCHMARK, CATALOG, SERVICE
from ome_operator.cli.live.cluster_from_manifests import full_name, ref_of_body
from ome_operator.cli.live.file_problems import without_cluster
from ome_operator.core.observed.objects import Manifest, Ref
from ome_operator.core.podspec.named_objects import references
from ome_operator.core.resolve.references import MissingReference, NamedReference, missing_references, needed_objects
from ome_operator.util.similar import most_similar

_KINDS = (SERVICE, *CATALOG, BENCHMARK)


def dangling_references(cluster: ClusterCache, objects: Iterable[Ref]) -> Iterator[tuple[Ref, tuple[MissingReference, ...]]]:
    """Yield each of these objects whose references name missing objects of the operator's kinds, together with these
    references. Missing are objects that the cluster does not have.
    """
    existing = frozenset(each.ref for kind in _KINDS for each in cluster.resources[kind])
    for which, item in _parsed(cluster, objects):
        if found := missing_references(item, existing):
            yield which, found


def offline_sentences(cluster: ClusterCache, given: Iterable[Manifest], catalog: str) -> list[str]:
    """Return a sentence for each reference of the objects `given` to an object of the operator's kinds that does not exist.
    `catalog` names the source of objects that are not in the files.
    """
    found = dangling_references(cluster, map(ref_of_body, given))
    return [
        f"{full_name(which)}: {text}"
        for which, each in found
        for text in without_cluster((one.sentence for one in each), catalog)
    ]


def named_references(cluster: ClusterCache, objects: Iterable[Ref]) -> Iterator[tuple[Ref, NamedReference]]:
    """Yield each of these objects with each reference to a claim, a Secret or a ConfigMap."""
    yield from ((which, each) for which, item in _parsed(cluster, objects) for each in dict.fromkeys(needed_objects(item)))


def misspelled_references(found: Iterable[NamedReference], written: Collection[Ref]) -> tuple[MissingReference, ...]:
    """Return those references to objects of other kinds that the files probably misspell. A reference is probably
    misspelled if the objects `written` of the files do not contain its object, but contain an object of a similar name.
    All other objects are expected to be on the cluster.
    """
    out = []
    for field, which in found:
        near = most_similar(which.name, (each.name for each in written if each[:2] == which[:2]))
        if near and which not in written:
            remedy = f"did you mean {near}? Otherwise make sure that it is on the cluster"
            says = f"{which.kind} {which.name} in namespace {which.namespace} is not in these files, which contain {near}"
            out.append(MissingReference(field, f"{says}: {remedy}"))
    return tuple(out)


def of_pods(pods: Iterable[tuple[str, Mapping[str, Any]]], namespace: str) -> Iterator[NamedReference]:
    """Yield the claims, Secrets and ConfigMaps that pods name. Each pod is given with the path of its component."""
    for where, pod in pods:
        yield from (NamedReference(where, Ref(kind, namespace, name)) for kind, name in references(pod["spec"]))


def _parsed(cluster: ClusterCache, objects: Iterable[Ref]) -> Iterator[tuple[Ref, Object[Any]]]:
    for which in sorted(objects):
        resource = cluster.find_resource(which) if which.kind in _KINDS else None
        if resource is not None and isinstance(resource.parsed, Object):
            yield which, resource.parsed
