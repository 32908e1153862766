"""The container that looks at a pod before its engine starts, or in its place (docs/preflight.md).

As an init container it has the engine's image, resources, volumes, environment and devices, so the scheduler gives the pod
no more and no other node. It comes after all others: what they fetch is there. Its program is stored with the templates.
"""

import json
from collections.abc import Mapping
from typing import Any

from ome_operator import keys, names, quantity
from ome_operator.core.observed.objects import Manifest
from ome_operator.preflight import code

KEPT = ("image", "imagePullPolicy", "workingDir", "envFrom", "resources", "volumeMounts", "volumeDevices", "securityContext")
"""Fields of the engine's container that the check has, too."""
SECONDS, MANY_SECONDS, MANY = 60, 120, 12
"""How long a check may take, and how long from so many ranks on."""


def guarded(pod: Manifest, mode: str, place: Mapping[str, Any]) -> Manifest:
    """The pod spec with the check; `place`: what the check has to know of its group (`group`)."""
    return {**pod, "initContainers": [*(pod.get("initContainers") or ()), container(pod["containers"][0], mode, place)]}


def container(main: Manifest, mode: str, place: Mapping[str, Any]) -> Manifest:
    """The check as a container beside this engine's, or in its place."""
    facts = {**place, **_resources(quantity.most(main))}
    env = {
        "OME_PREFLIGHT_MODE": mode,
        "OME_PREFLIGHT_BOOT": code.BOOT,
        "OME_PREFLIGHT_CODE": code.packed(),
        "OME_PREFLIGHT": json.dumps(facts, separators=(",", ":")),
    }
    return {
        "name": keys.PREFLIGHT_CONTAINER,
        **{field: main[field] for field in KEPT if field in main},
        # As the engine's: the kubelet replaces variables in both alike.
        "command": ["/bin/sh", "-c", code.LAUNCH, "preflight", *(main.get("command") or ())],
        "args": list(main.get("args") or ()),
        "env": [*(main.get("env") or ()), *({"name": name, "value": value} for name, value in env.items())],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def group(service: str, namespace: str, revision: str, component: str, size: int, port: int) -> dict[str, Any]:
    """Names of ranks, as JSON in which %d stands for a rank or for a group; `port`: where rank 0 serves, 0 if not known."""
    domain = f"{names.headless(service)}.{namespace}"
    prefill = names.stem(service, keys.ENGINE, revision) if component == keys.DECODER else ""
    return placed(names.stem(service, component, revision), domain, size, port, prefill)


def placed(stem: str, domain: str, size: int, port: int, prefill: str) -> dict[str, Any]:
    """The same from what names of pods begin with; `prefill`: those of the prefill groups that decode ranks ask."""
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
    """GPUs of the kind whose tools the check knows, and huge pages in bytes."""
    out: dict[str, Any] = {}
    if gpus := quantity.units("nvidia.com/gpu", asked.get("nvidia.com/gpu") or 0):
        out["gpus"] = gpus
    pages = {name.removeprefix("hugepages-"): quantity.units(name, amount) for name, amount in asked.items()
             if name.startswith("hugepages-")}  # fmt: skip
    return out | ({"hugepages": pages} if pages else {})
