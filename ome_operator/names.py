"""Names of everything that a service gets. Functions, so that a name is spelled in one place.

Limits that the API server enforces late or quietly (measured, decisions 18): a StatefulSet whose name is longer than 52
characters is accepted but its pods never come, because name and revision make a label of at most 63. The sets of a group
add `-<group>` and `-<group>-w` to the stem of their role; with five digits for the group the stem has at most 44 characters.
Services are DNS-1035 names of at most 63 characters.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from ome_operator import keys

STEM = 44
"""Characters that a role of a slice may have before the number of a group."""
LABEL = 63
WEIGHTS = 32
"""Hexadecimal digits of a directory of weights: nobody finds a second model with the digest of a first."""
OME_LABEL, OME_NAMESPACE = 49, 8
"""Characters that OME gives to the name of a model's node label, and to the namespace in it where both are too long."""


def digest(value: Any, length: int = 8) -> str:
    """Hex digest of JSON data, independent of the order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def fit(name: str, limit: int) -> str:
    """The name itself, or its beginning and a digest of the whole when it is longer than `limit`."""
    return name if len(name) <= limit else f"{name[: limit - 9].rstrip('-.')}-{digest(name)}"


def stem(service: str, component: str, revision: str) -> str:
    """What names of everything begin with that belongs to one component of one slice."""
    return fit(f"{service}-{component}-{revision}", STEM)


def title(component: str, disaggregated: bool) -> str:
    """Prefill and decode where both exist, else the component's own name."""
    return {keys.ENGINE: "prefill", keys.DECODER: "decode"}.get(component, component) if disaggregated else component


def leader(stem: str, group: int | str) -> str:
    """Leader StatefulSet of one group; its only pod is `<leader>-0`."""
    return f"{stem}-{group}"


def leader_pod(stem: str, group: int | str) -> str:
    """Pod of rank 0 of one group."""
    return f"{leader(stem, group)}-0"


def worker(stem: str, group: int | str) -> str:
    """Worker StatefulSet of one group; its pods are `<worker>-<rank>`."""
    return f"{stem}-{group}-w"


_GROUP = re.compile(r".+-(\d{1,5})(-w)?")


def group(stateful_set: str) -> tuple[int, bool] | None:
    """Number of the group that a StatefulSet of this name belongs to, and whether it is its leader's; None for another."""
    found = _GROUP.fullmatch(stateful_set)
    return (int(found[1]), not found[2]) if found else None


def leader_of(stateful_set: str) -> str:
    """Leader StatefulSet of the group whose worker StatefulSet has this name; "" for any other name."""
    found = group(stateful_set)
    return stateful_set.removesuffix("-w") if found and not found[1] else ""


def revision_object(service: str, revision: str) -> str:
    """ControllerRevision that stores a revision's inputs and workloads."""
    return f"{service}-{revision}"


def router(service: str, revision: str) -> str:
    """Router Deployment of a slice, and the Service of these routers where an HTTPRoute leads to them."""
    return stem(service, keys.ROUTER, revision)


def budget(service: str, component: str, revision: str) -> str:
    """PodDisruptionBudget of one component of a slice."""
    return stem(service, component, revision)


def component(service: str, name: str) -> str:
    """Component Service, RoleScale and HorizontalPodAutoscaler of a component; the router's ServiceAccount and Role."""
    return f"{service}-{name}"


def ssh_secret(service: str) -> str:
    """Secret with the SSH keys of a service's pods."""
    return f"{service}-ssh"


def router_key(service: str) -> str:
    """Secret with the key for the control plane of a service's routers."""
    return f"{service}-router-key"


def headless(service: str) -> str:
    """Headless Service that gives every pod of the service its DNS name."""
    return f"{service}-pods"


def trial(run: str) -> str:
    """Headless Service of a run of `ome preflight`, and what the names of its pods begin with."""
    return f"ome-preflight-{run}"


def benchmark(name: str) -> str:
    """Job of a BenchmarkJob; its pods add a dash and five characters, and carry its name as a label."""
    return fit(f"benchmark-{name}", LABEL - 6)


def model_label(kind: str, namespace: str, name: str) -> str:
    """Node label key that is `Ready` where the model's files are whole (docs/models-agent.md).

    OME's agent writes the same key, so a cluster that it has labelled is served at once: OME gives the part after the slash
    49 characters, and cuts what is longer as `tail` does. FineTunedWeights, which it does not label, have all 63.
    """
    if namespace:
        return f"{keys.MODEL_LABEL_PREFIX}{_namespaced(namespace, name)}"
    if kind != "ClusterBaseModel":
        return keys.MODEL_LABEL_PREFIX + fit(f"{kind.lower()}.{name}", LABEL)
    return f"{keys.MODEL_LABEL_PREFIX}clusterbasemodel.{tail(name, OME_LABEL - len('clusterbasemodel.'))}"


def _namespaced(namespace: str, name: str) -> str:
    """The part after the slash for a BaseModel. Where it is too long, the namespace is cut to eight characters first."""
    room = OME_LABEL - len(".basemodel.")
    if len(namespace) + len(name) > room:
        namespace = tail(namespace, OME_NAMESPACE)
        name = tail(name, room - len(namespace))
    return f"{namespace}.basemodel.{name}"


def tail(name: str, limit: int) -> str:
    """The name itself, or OME's short form of what is longer than `limit`: eight digits of its SHA-256 and its end."""
    if len(name) <= limit:
        return name
    start = hashlib.sha256(name.encode()).hexdigest()[:8]
    room = limit - len(start) - 1
    return f"{start}-{name[-room:]}" if room > 0 else start


def weights_digest(identity: Mapping[str, str]) -> str:
    """Name of the directory that holds the weights of this storage identity (decisions 7).

    It follows from everything that decides their bytes, so no other model has this directory (docs/tenancy.md).
    """
    return digest({"source": "", **identity}, WEIGHTS)


def revision_label(kind: str, namespace: str, name: str, directory: str) -> str:
    """Node label key that is `Ready` where one revision of the model is whole: pods of that revision require it."""
    return whole_label(model_label(kind, namespace, name), directory)


def whole_label(label: str, directory: str) -> str:
    """The same from the model's own label."""
    plain = label.removeprefix(keys.MODEL_LABEL_PREFIX)
    return f"{keys.MODEL_LABEL_PREFIX}{fit(plain, LABEL - len(directory) - 1)}.{directory}"
