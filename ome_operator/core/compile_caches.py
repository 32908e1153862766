"""The compile caches of engines: determine which services request a cache, and render the containers that copy the cache
(docs/compile-caches.md).

What an engine compiles is code that a later start runs. So a cache belongs to the pods of one role of one service in one
namespace, with one image, one command line and one hardware, and only the agent of the node can write it (decisions 46).
"""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from ome_operator import keys, names, quantity
from ome_operator.api import InferenceService, Runtime
from ome_operator.compile_cache import code
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.observed.restored import LEADER_ADDRESS
from ome_operator.core.podspec import layered_annotations as layers
from ome_operator.core.weights import compile_caches as layout
from ome_operator.engines.routers import parts
from ome_operator.engines.servers import server
from ome_operator.settings import Policy
from ome_operator.settings.policy import ENABLE_COMPILE_CACHES

STORED = "compileCache"
"""Key in a revision's inputs for the annotation of the service."""
ON, OFF = "true", "false"
FOLDER, AGENT = "/var/cache/ome-compile", "/run/ome-compile"
"""Paths of the pod's own volume, and of the directory with the agent's socket, which the engine does not mount."""
OWN_VOLUME, AGENT_VOLUME = "ome-compile-cache", "ome-compile-cache-agent"
NVIDIA = "nvidia.com/gpu"
SMALL = {"cpu": "100m", "memory": "128Mi"}
"""Requests and limits of the sidecar. They are equal, so that the pod keeps the QoS class Guaranteed."""
_IDENTITY = ("runAsUser", "runAsGroup", "runAsNonRoot", "seLinuxOptions", "appArmorProfile", "seccompProfile")
"""Fields of the engine's securityContext that its other containers copy, because they read and write the same files."""
_RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}
_DIGEST = re.compile(r".+@sha256:[0-9a-f]{64}")
_FOR_ADDRESS = frozenset({"POD_NAME", "LWS_GROUP_INDEX", LEADER_ADDRESS})
"""Variables that the address of the leader consists of."""


def read(value: Any) -> str:
    """Return the value of the annotation in its canonical spelling; "" if it is neither true nor false."""
    return next((known for known in (ON, OFF) if known == str(value).strip().lower()), "")


def asked(service: InferenceService) -> str:
    """Return the value of the annotation that the service sets for all of its components. Return "" if the service does not
    set the annotation, or if its value is not valid.
    """
    return read(service.annotations.get(keys.COMPILE_CACHE, ""))


def advice(service: InferenceService, runtime: Runtime | None) -> tuple[str, ...]:
    """Return a sentence for each value that is not valid. `runtime` is None if the runtime is not available."""
    return layers.invalid_values(service, runtime, keys.COMPILE_CACHE, read, f"is neither {ON} nor {OFF}", layers.ENGINES)


def root(policy: Policy) -> str:
    """Return the root directory of the agents' compile caches; "" if agents keep none."""
    return policy.agent_roots[0] if policy.model_agent and policy.compile_caches and policy.agent_roots else ""


def requested(inputs: Mapping[str, Any], component: str) -> bool:
    """Return whether a component of a revision requests a cache."""
    return layers.effective_value(inputs, component, keys.COMPILE_CACHE, STORED, read) == ON


def refusal(top: str, variables: Collection[str], *pods: Manifest) -> str:
    """Return a sentence that explains why the pods of a group get no cache; "" if they get a cache. `top` is the result of
    `root`, and `variables` are the names of the variables that the accelerator class sets. The engine's container is the
    first of each pod.
    """
    why = next((why for pod in pods if (why := _why_not(pod, variables))), "") if top else ENABLE_COMPILE_CACHES
    return f"annotation {keys.COMPILE_CACHE} has no effect: {why}" if why else ""


def _why_not(pod: Manifest, variables: Collection[str]) -> str:
    main = pod["containers"][0]
    engine = server(main)
    if engine is None or not engine.caches:
        return "it is not known where this engine keeps what it compiles: only SGLang is supported"
    if not _DIGEST.fullmatch(str(main.get("image", ""))):
        return f"image {main.get('image')} has no digest, so it may change: write NAME@sha256:DIGEST"
    words, named = " ".join(parts(main)), {variable["name"] for variable in main.get("env") or ()}
    for name in engine.caches:
        if re.search(rf"\b{name}=", words) or name in named or name in variables:  # a command may read the variable
            return f"{name} is set already: remove the variable"
    if other := [name for name in quantity.resource_maximums(main) if name.endswith("/gpu") and name != NVIDIA]:
        return f"the driver of {other[0]} cannot be identified: only NVIDIA GPUs and CPUs are supported"
    if (main.get("lifecycle") or {}).get("postStart"):
        return "the container has the hook lifecycle.postStart, which the cache needs: remove it"
    if taken := {OWN_VOLUME, AGENT_VOLUME} & {volume["name"] for volume in pod.get("volumes") or ()}:
        return f"the pod has a volume {min(taken)}: rename it"
    if any(mount["mountPath"].rstrip("/") == FOLDER for mount in main.get("volumeMounts") or ()):
        return f"the container mounts a volume at {FOLDER}: mount it elsewhere"
    return ""


def directory(top: str, namespace: str, identity: Any) -> str:
    """Return the directory on the node for pods with this identity. `identity` is JSON data with everything on which the
    result of a compilation depends, except the hardware. `top` is the directory on the node in which all compile caches are.
    """
    return layout.directory(top, namespace, names.digest(identity, layout.DIGITS))


def with_cache(pod: Manifest, node_directory: str, port: int) -> Manifest:
    """Return the pod spec with a volume for the engine's cache, an init container that fills the volume from the agent of
    the node, and a sidecar that sends the cache to the agent when the leader serves HTTP on `port`.
    """
    main, *others = pod["containers"]
    engine = server(main)
    assert engine is not None  # otherwise `refusal` has returned a sentence
    own = {"name": OWN_VOLUME, "mountPath": FOLDER}
    variables = [
        {"name": name, "value": "/".join((FOLDER, "cache", *([folder] if folder else [])))}
        for name, folder in engine.caches.items()
    ]
    volumes = [
        {"name": OWN_VOLUME, "emptyDir": {}},
        {"name": AGENT_VOLUME, "hostPath": {"path": node_directory, "type": "DirectoryOrCreate"}},
    ]
    facts = {
        "folder": FOLDER,
        "agent": f"{AGENT}/{layout.SOCKET}",
        "health": f"http://$({LEADER_ADDRESS}):{port}{engine.health}",
        "gpus": NVIDIA in quantity.resource_maximums(main),
    }
    load = _container(main, "load", facts, own)
    seal = _container(main, "seal", facts, {**own, "readOnly": True})
    load = {"name": keys.COMPILE_CACHE_CONTAINER, **load}
    if main.get("resources"):  # also the GPUs, because the program reads their driver; the pod requests no more
        load["resources"] = main["resources"]
    seal = {"name": keys.COMPILE_CACHE_SIDECAR, "restartPolicy": "Always", **seal}
    seal["resources"] = {"requests": dict(SMALL), "limits": dict(SMALL)}
    again = {"exec": {"command": ["/bin/sh", "-c", code.AGAIN, "compile-cache", FOLDER]}}
    main = {
        **main,
        "lifecycle": {**(main.get("lifecycle") or {}), "postStart": again},
        "env": [*(main.get("env") or ()), *variables],
        "volumeMounts": [*(main.get("volumeMounts") or ()), own],
    }
    return {
        **pod,
        "initContainers": [*(pod.get("initContainers") or ()), load, seal],
        "containers": [main, *others],
        "volumes": [*(pod.get("volumes") or ()), *volumes],
    }


def _container(main: Manifest, step: str, facts: Mapping[str, Any], own: Manifest) -> Manifest:
    """Return the fields that the init container and the sidecar have in common. Both containers run a step of the program in
    the engine's image. `main` is the engine's container, `step` is `load` or `seal`, `facts` are the settings of the
    program, and `own` is the mount of the pod's own volume.
    """
    context = main.get("securityContext") or {}
    env = {
        "OME_COMPILE_CACHE": json.dumps(facts, separators=(",", ":")),
        "OME_COMPILE_CACHE_BOOT": code.BOOT,
    }
    if step == "load":
        env["OME_COMPILE_CACHE_CODE"] = code.packed()
    return {
        "image": main["image"],
        **({"imagePullPolicy": main["imagePullPolicy"]} if "imagePullPolicy" in main else {}),
        "command": ["/bin/sh", "-c", code.LAUNCH, "compile-cache", step, f"{FOLDER}/.program"],
        "env": [
            *(variable for variable in main.get("env") or () if variable["name"] in _FOR_ADDRESS),
            *({"name": name, "value": value} for name, value in env.items()),
        ],
        "volumeMounts": [own, {"name": AGENT_VOLUME, "mountPath": AGENT, "readOnly": True}],
        "securityContext": {
            "seccompProfile": {"type": "RuntimeDefault"},
            **{field: context[field] for field in _IDENTITY if field in context},
            **_RESTRICTED,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
