"""Directories of a node that pods mount, and whether a directory of weights is among them."""

from collections.abc import Iterable, Mapping
from posixpath import join, normpath
from typing import Any


def hosts(pod: Mapping[str, Any]) -> set[str]:
    """Directories of the node that a pod spec mounts, and the parts of them that its containers see."""
    named = {one.get("name"): (one.get("hostPath") or {}).get("path") for one in pod.get("volumes") or ()}
    volumes = {name: path for name, path in named.items() if path}
    found = set(volumes.values())
    for box in (*(pod.get("initContainers") or ()), *(pod.get("containers") or ()), *(pod.get("ephemeralContainers") or ())):
        for one in box.get("volumeMounts") or ():
            if one.get("name") in volumes and one.get("subPath"):
                found.add(join(volumes[one["name"]], one["subPath"]))
    return {normpath(one) for one in found}


def reaches(mounted: Iterable[str], places: Iterable[str]) -> bool:
    """Whether something that is mounted is one of these places or lies in it.

    What mounts a directory above refers to nothing: agents mount the whole disk for weights, others the whole node.
    """
    wanted = [normpath(one) for one in places]
    return any(one == place or one.startswith(f"{place}/") for one in mounted for place in wanted)
