"""The container that checks a node before the engine starts on it, or instead of the engine (docs/preflight.md).

It is an init container with the engine's image, resources, volumes, environment and devices, so the scheduler reserves no
additional resources for the pod, and selects no other node. It is the last init container, so the files that other init
containers fetch already exist. Its program is stored with the pod templates.
"""

import json
from collections.abc import Mapping
from typing import Any

from ome_operator import keys, names, quantity
from ome_operator.core.observed.objects import Manifest
from ome_operator.preflight import code

KEPT = ("image", "imagePullPolicy", "workingDir", "envFrom", "resources", "volumeMounts", "volumeDevices", "securityContext")
"""Fields of the engine's container that the check copies."""
SECONDS, MANY_SECONDS, MANY = 60, 120, 12
"""Time limit of a check in seconds; the time limit for large groups; and the number of ranks from which a group is large."""


def add_preflight_check(pod: Manifest, mode: str, place: Mapping[str, Any]) -> Manifest:
    """Return the pod spec `pod` with the preflight check added as its last init container. `mode` is one of `mode.MODES`.
    `place` is the result of `group`: the data that the check needs about its group.
    """
    return {**pod, "initContainers": [*(pod.get("initContainers") or ()), container(pod["containers"][0], mode, place)]}


def container(main: Manifest, mode: str, place: Mapping[str, Any]) -> Manifest:
    """Return the container of the check. It has the image, environment, resources and volumes of the engine's container
    `main`. `mode` and `place` have the same meaning as in `add_preflight_check`.
    """
    facts = {**place, **_resources(quantity.resource_maximums(main))}
    env = {
        "OME_PREFLIGHT_MODE": mode,
        "OME_PREFLIGHT_BOOT": code.BOOT,
        "OME_PREFLIGHT_CODE": code.packed(),
        "OME_PREFLIGHT": json.dumps(facts, separators=(",", ":")),
    }
    return {
        "name": keys.PREFLIGHT_CONTAINER,
        **{field: main[field] for field in KEPT if field in main},
        # Command and arguments are passed in the fields of the engine, so that the kubelet expands variables in the same
        # way.
        "command": ["/bin/sh", "-c", code.LAUNCH, "preflight", *(main.get("command") or ())],
        "args": list(main.get("args") or ()),
        "env": [*(main.get("env") or ()), *({"name": name, "value": value} for name, value in env.items())],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def group(service: str, namespace: str, revision: str, component: str, size: int, port: int) -> dict[str, Any]:
    """Return the data that a check needs about its group, as a dict that can be encoded as JSON. The dict contains the DNS
    names of the ranks, with %d in place of the number of a group or a rank. `size` is the number of ranks in a group. `port`
    is the port on which rank 0 serves HTTP, 0 if it is unknown.
    """
    domain = f"{names.headless(service)}.{namespace}"
    prefill = names.object_prefix(service, keys.ENGINE, revision) if component == keys.DECODER else ""
    return group_data(names.object_prefix(service, component, revision), domain, size, port, prefill)


def group_data(stem: str, domain: str, size: int, port: int, prefill: str) -> dict[str, Any]:
    """Return the data that a check needs about its group, as `group` does, but from the common prefix (`stem`) of the names
    of the group's pods. `domain` is the DNS name of the headless Service. `prefill` is the prefix of the pod names of the
    prefill groups that decode ranks contact; "" if there are none. `size` is the number of ranks of the group.
    """
    own = "$(LWS_GROUP_INDEX)"
    out: dict[str, Any] = {"rank": "$(LWS_WORKER_INDEX)", "size": size, "http": port}
    out["leader"] = f"{names.leader_pod(stem, own)}.{domain}"
    if size > 1:
        out["worker"] = f"{names.worker(stem, own)}-%d.{domain}"
    if prefill:
        out["prefill"] = f"{names.leader_pod(prefill, '%d')}.{domain}"
    out["seconds"] = MANY_SECONDS if size >= MANY else SECONDS
    return out


def _resources(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the requested resources that the check has to know: the number of NVIDIA GPUs (the check cannot examine other
    GPUs), and the bytes of huge pages by page size.
    """
    out: dict[str, Any] = {}
    if gpus := quantity.units("nvidia.com/gpu", asked.get("nvidia.com/gpu") or 0):
        out["gpus"] = gpus
    pages = {name.removeprefix("hugepages-"): quantity.units(name, amount) for name, amount in asked.items()
             if name.startswith("hugepages-")}  # fmt: skip
    return out | ({"hugepages": pages} if pages else {})
