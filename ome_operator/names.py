"""Names of all objects of a service, as functions, so that each name is defined once.

Some limits are enforced late or silently by the API server (measured, decisions 18): a StatefulSet whose name is longer than
52 characters is accepted but gets no pods, because name and revision form a label of at most 63 characters. The StatefulSets
of a group append `-<group>` and `-<group>-w` to the stem of their role; with five digits for the group the stem has at most
44 characters. Services are DNS-1035 names of at most 63 characters.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ome_operator import keys

STEM = 44
"""Maximum number of characters of the stem of a role, which precedes the number of a group."""
LABEL = 63
WEIGHTS = 32
"""Number of hexadecimal digits in the name of a directory of weights. It is large enough that nobody can construct a
second model with the same name."""
OME_LABEL, OME_NAMESPACE = 49, 8
"""Limits that OME uses for node labels of models: the maximum number of characters of a model's part of the label, and the
number of characters to which a namespace is shortened if namespace and name together are too long."""


def digest(value: Any, length: int = 8) -> str:
    """Return the first `length` hex digits of the SHA-256 of JSON data. The order of the keys has no
    effect on the result.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def shorten_with_digest(name: str, limit: int) -> str:
    """Return the name itself or, if it has more than `limit` characters, its beginning followed by a digest of the whole
    name.
    """
    return name if len(name) <= limit else f"{name[: limit - 9].rstrip('-.')}-{digest(name)}"


def object_prefix(service: str, component: str, revision: str) -> str:
    """Return the common prefix of the names of all objects of a component in one revision of a service."""
    return shorten_with_digest(f"{service}-{component}-{revision}", STEM)


def role_title(component: str, disaggregated: bool) -> str:
    """Return the name of a component for users: prefill or decode if the service has both, otherwise the component's own
    name. `disaggregated` states whether the service has both prefill and decode.
    """
    return {keys.ENGINE: "prefill", keys.DECODER: "decode"}.get(component, component) if disaggregated else component


def leader(stem: str, group: int | str) -> str:
    """Return the name of a group's leader StatefulSet; its only pod is `<leader>-0`."""
    return f"{stem}-{group}"


def leader_pod(stem: str, group: int | str) -> str:
    """Return the name of the pod of rank 0 of a group."""
    return f"{leader(stem, group)}-0"


def worker(stem: str, group: int | str) -> str:
    """Return the name of a group's worker StatefulSet; its pods are `<worker>-<rank>`."""
    return f"{stem}-{group}-w"


_GROUP = re.compile(r".+-(\d{1,5})(-w)?")


@lru_cache(maxsize=4096)
def group(stateful_set: str) -> tuple[int, bool] | None:
    """Return the number of the group of a StatefulSet, and whether the StatefulSet is the leader's, from its name; None
    for other names.
    """
    found = _GROUP.fullmatch(stateful_set)
    return (int(found[1]), not found[2]) if found else None


def leader_of(stateful_set: str) -> str:
    """Return the name of the leader StatefulSet in the group to which this worker StatefulSet belongs; "" for any other
    name.
    """
    found = group(stateful_set)
    return stateful_set.removesuffix("-w") if found and not found[1] else ""


def revision_object(service: str, revision: str) -> str:
    """Return the name of the ControllerRevision that stores a revision's inputs and workloads."""
    return f"{service}-{revision}"


def router(service: str, revision: str) -> str:
    """Return the name of the router Deployment of a revision, and of the Service in front of that Deployment if there is an
    HTTPRoute.
    """
    return object_prefix(service, keys.ROUTER, revision)


def budget(service: str, component: str, revision: str) -> str:
    """Return the name of the PodDisruptionBudget of a component in one revision of a service."""
    return object_prefix(service, component, revision)


def component(service: str, name: str) -> str:
    """Return the name of a component's Service, RoleScale and HorizontalPodAutoscaler, and of the router's ServiceAccount
    and Role.
    """
    return f"{service}-{name}"


def ssh_secret(service: str) -> str:
    """Return the name of the Secret with the SSH keys of a service's pods."""
    return f"{service}-ssh"


def router_key(service: str) -> str:
    """Return the name of the Secret with the key for the control plane of a service's routers."""
    return f"{service}-router-key"


def headless(service: str) -> str:
    """Return the name of the headless Service that gives every pod of the service its DNS name."""
    return f"{service}-pods"


def address(pod: str, service: str, namespace: str) -> str:
    """Return the DNS name of a pod of a service, within the cluster."""
    return f"{pod}.{headless(service)}.{namespace}"


def trial(run: str) -> str:
    """Return the name of the headless Service of a run of `ome preflight`. It is also the prefix of the names of the
    run's pods.
    """
    return f"ome-preflight-{run}"


def image_pull(service: str, revision: str, suffix: str = "") -> str:
    """Return the name of the Job that pulls an image of a revision onto a node. `suffix` is a digest of the image and
    the node; without it, the result is the prefix of the names of all these Jobs. The Job's pods append a dash and five
    characters.
    """
    return f"{shorten_with_digest(service, 33)}-pull-{revision}-{suffix}"


def benchmark(name: str) -> str:
    """Return the name of a BenchmarkJob's Job. The Job's pods append a dash and five characters to it, and have it as a
    label.
    """
    return shorten_with_digest(f"benchmark-{name}", LABEL - 6)


def model_label(kind: str, namespace: str, name: str) -> str:
    """Return the key of the node label that is `Ready` if the model's files are complete (docs/models-agent.md).

    OME's agent writes the same key, so nodes that it has labeled can be used at once: OME allows 49 characters after the
    slash, and shortens longer names as `short_tail` does. FineTunedWeights, which OME does not label, may use all 63.
    """
    if namespace:
        return f"{keys.MODEL_LABEL_PREFIX}{_namespaced(namespace, name)}"
    if kind != "ClusterBaseModel":
        return keys.MODEL_LABEL_PREFIX + shorten_with_digest(f"{kind.lower()}.{name}", LABEL)
    return f"{keys.MODEL_LABEL_PREFIX}clusterbasemodel.{short_tail(name, OME_LABEL - len('clusterbasemodel.'))}"


def _namespaced(namespace: str, name: str) -> str:
    """Return the part of a BaseModel's node label after the slash. If namespace and name together are too long, the
    namespace is cut to eight characters first.
    """
    room = OME_LABEL - len(".basemodel.")
    if len(namespace) + len(name) > room:
        namespace = short_tail(namespace, OME_NAMESPACE)
        name = short_tail(name, room - len(namespace))
    return f"{namespace}.basemodel.{name}"


def short_tail(name: str, limit: int) -> str:
    """Return the name itself or, if it has more than `limit` characters, OME's short form: eight digits of its SHA-256 and
    its end.
    """
    if len(name) <= limit:
        return name
    start = hashlib.sha256(name.encode()).hexdigest()[:8]
    room = limit - len(start) - 1
    return f"{start}-{name[-room:]}" if room > 0 else start


def public_digest(text: str) -> str:
    """Return a digest of a pod's UID, or of the label selector of a slice (the pods of one revision). It identifies the pod
    or the slice without revealing a name.
    """
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def slice_mark(namespace: str, selector: str) -> str:
    """Return the digest (`public_digest`) that identifies a slice, the pods of one revision, by the label selector of these
    pods in the syntax of the API server.
    """
    return public_digest(f"{namespace}/{','.join(sorted(selector.split(',')))}")


def weights_digest(identity: Mapping[str, str]) -> str:
    """Return the name of the directory that holds the weights of this storage identity (decisions 7).

    The name is derived from everything that determines the bytes, so no other model has the same directory
    (docs/tenancy.md).
    """
    return digest({"source": "", **identity}, WEIGHTS)


def revision_label(kind: str, namespace: str, name: str, directory: str) -> str:
    """Return the key of the node label that is `Ready` if a revision of the model is complete on the node. Pods of that
    revision require this label.
    """
    return whole_label(model_label(kind, namespace, name), directory)


def whole_label(label: str, directory: str) -> str:
    """Return the key of the node label of a model's revision, as `revision_label` does. `label` is the key of the model's
    own label, and `directory` the name of the revision's directory.
    """
    plain = label.removeprefix(keys.MODEL_LABEL_PREFIX)
    return f"{keys.MODEL_LABEL_PREFIX}{shorten_with_digest(plain, LABEL - len(directory) - 1)}.{directory}"
