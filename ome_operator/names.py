"""Names of everything that a service gets. Functions, so that a name is spelled in one place.

Limits that the API server enforces late or quietly (measured, decisions 18): a StatefulSet whose name is longer than 52
characters is accepted but its pods never come, because name and revision make a label of at most 63; worker StatefulSets
add `-<group>`, so the leader's stem stays at 46 or below. Services are DNS-1035 names of at most 63 characters.
"""

import hashlib
import json
from typing import Any

from ome_operator import keys

STEM = 46
LABEL = 63


def digest(value: Any, length: int = 8) -> str:
    """Hex digest of JSON data, independent of the order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def fit(name: str, limit: int) -> str:
    """The name itself, or its beginning and a digest of the whole when it is longer than `limit`."""
    return name if len(name) <= limit else f"{name[: limit - 9].rstrip('-.')}-{digest(name)}"


def leader(service: str, component: str, revision: str) -> str:
    """Leader StatefulSet of a slice; its pods are `<leader>-<group>`."""
    return fit(f"{service}-{component}-{revision}", STEM)


def worker(service: str, component: str, revision: str, group: int) -> str:
    """Worker StatefulSet of one group; its pods are `<worker>-<rank>`."""
    return f"{leader(service, component, revision)}-{group}"


def revision_object(service: str, revision: str) -> str:
    """ControllerRevision that stores a revision's inputs and workloads."""
    return f"{service}-{revision}"


def router(service: str, revision: str) -> str:
    """Router Deployment of a slice."""
    return leader(service, keys.ROUTER, revision)


def budget(service: str, component: str, revision: str) -> str:
    """PodDisruptionBudget of one component of a slice."""
    return leader(service, component, revision)


def component(service: str, name: str) -> str:
    """Component Service, RoleScale and HorizontalPodAutoscaler of a component; the router's ServiceAccount and Role."""
    return f"{service}-{name}"


def ssh_secret(service: str) -> str:
    """Secret with the SSH keys of a service's pods."""
    return f"{service}-ssh"


def headless(service: str) -> str:
    """Headless Service that gives every pod of the service its DNS name."""
    return f"{service}-pods"


def benchmark(name: str) -> str:
    """Job of a BenchmarkJob; its pods add a dash and five characters, and carry its name as a label."""
    return fit(f"benchmark-{name}", LABEL - 6)


def model_label(kind: str, namespace: str, name: str) -> str:
    """Node label key that is `Ready` where the model's files are whole (docs/models-agent.md).

    The part after the slash must fit a label name: 63 characters.
    """
    plain = f"{namespace}.basemodel.{name}" if namespace else f"{kind.lower()}.{name}"
    return keys.MODEL_LABEL_PREFIX + fit(plain, LABEL)


def weights_digest(uri: str) -> str:
    """Name of the directory that holds what a storage URI stands for (decisions 7)."""
    return digest(uri)


def revision_label(kind: str, namespace: str, name: str, directory: str) -> str:
    """Node label key that is `Ready` where one revision of the model is whole: pods of that revision require it."""
    return whole_label(model_label(kind, namespace, name), directory)


def whole_label(label: str, directory: str) -> str:
    """The same from the model's own label."""
    plain = label.removeprefix(keys.MODEL_LABEL_PREFIX)
    return f"{keys.MODEL_LABEL_PREFIX}{fit(plain, LABEL - len(directory) - 1)}.{directory}"
