"""The worker registry as a sidecar of routers: what it is told, and what it may do (nothing but listen and ask)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ome_operator import keys, quantity
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.render import meta, router_key
from ome_operator.core.render.statefulsets import Stored, stem
from ome_operator.engines.routers import BOOTSTRAP_PORT, SglangRouter, sglang_router, value

NAME = "ome-registry"
OFF = "false"
TYPES = {keys.ENGINE: "prefill", keys.DECODER: "decode"}


class Groups(NamedTuple):
    """One role of the slice."""

    component: str
    port: int
    """Where leaders serve HTTP."""
    pods: int
    """In a group."""
    stem: str
    """What the names of its StatefulSets begin with: the registry takes a pod for a worker only by its owner."""


class Sidecar(NamedTuple):
    """What a router's registry needs to know beyond the router."""

    image: str
    """ "" for no registry."""
    roles: tuple[Groups, ...] = ()
    bootstrap_port: int = BOOTSTRAP_PORT
    pull_secrets: tuple[str, ...] = ()
    """Names of Secrets of the service's namespace with which the image is pulled."""


def sidecar(image: str, roles: Mapping[str, Stored], pull_secrets: tuple[str, ...] = ()) -> Sidecar:
    """The registry for the routers of a slice with these roles."""
    words: list[str] = []
    if keys.ENGINE in roles:
        box = roles[keys.ENGINE].leader["spec"]["template"]["spec"]["containers"][0]
        words = [word for part in ("command", "args") for one in box.get(part) or () for word in str(one).split()]
    port = value(words, "--disaggregation-bootstrap-port") or ""
    # In one order: what is rendered now and what is read back from the API server must give equal manifests.
    groups = tuple(Groups(name, roles[name].port, roles[name].size, stem(roles[name])) for name in TYPES if name in roles)
    said = quantity.whole(port)
    return Sidecar(image, groups, BOOTSTRAP_PORT if said is None else said, pull_secrets)


def with_registry(
    pod: Manifest, owner: meta.Owner, revision: str, annotations: Mapping[str, str], wanted: Sidecar
) -> Manifest:
    """The router's pod with the registry, where there is something for it to do.

    It is a native sidecar, so that it starts before the router and outlives it.
    """
    router = sglang_router(pod["containers"][0])
    if router is None or not wanted.image or annotations.get(keys.REGISTRY) == OFF:
        return pod
    if not wanted.roles or router.pd != (len(wanted.roles) > 1):
        return pod
    box = _container(owner, revision, router, wanted)
    # Our key is read from the variable: an argument would show it in the list of the node's processes.
    needed = [*box["args"], *([router_key.REFERENCE] if router.key == router_key.REFERENCE else [])]
    if env := _environment(needed, pod["containers"][0].get("env") or []):
        box["env"] = env
    if sources := pod["containers"][0].get("envFrom"):
        box["envFrom"] = sources
    return {**pod, "initContainers": [*(pod.get("initContainers") or ()), box], **_pulled(pod, wanted)}


def _pulled(pod: Manifest, wanted: Sidecar) -> Manifest:
    """The Secrets of the pod, and ours behind them; the kubelet tries each."""
    own = pod.get("imagePullSecrets") or []
    names = {secret["name"] for secret in own}
    more = [{"name": name} for name in wanted.pull_secrets if name not in names]
    return {"imagePullSecrets": [*own, *more]} if more else {}


def _container(owner: meta.Owner, revision: str, router: SglangRouter, wanted: Sidecar) -> Manifest:
    args = [
        "registry",
        f"--router={router.address}",
        f"--namespace={owner.namespace}",
        f"--selector={meta.requirement({**meta.labels(owner.name), keys.REVISION: revision})}",
    ]
    for role in wanted.roles:
        kind = TYPES[role.component] if router.pd else "regular"
        args.append(f"--role={role.component}:{kind}:{router.worker_port or role.port}:{role.pods}:{role.stem}")
    args += [f"--bootstrap-port={wanted.bootstrap_port}"] if router.pd else []
    args += [f"--key={router.key}"] if router.key not in ("", router_key.REFERENCE) else []
    args += [f"--worker-key={router.worker_key}"] if router.worker_key else []
    probe = {"httpGet": {"path": "/healthz", "port": keys.REGISTRY_PORT}, "timeoutSeconds": 3}
    return {
        "name": NAME,
        "image": wanted.image,
        "imagePullPolicy": "IfNotPresent",
        "restartPolicy": "Always",
        "args": args,
        "ports": [{"name": NAME, "containerPort": keys.REGISTRY_PORT, "protocol": "TCP"}],
        "startupProbe": {**probe, "periodSeconds": 1, "failureThreshold": 60},
        "livenessProbe": {**probe, "periodSeconds": 10, "failureThreshold": 6},
        # 49 MiB with 3 pods, 58 MiB with 128 (measured).
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _environment(words: list[str], env: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The variables that the words refer to, and those that these refer to; in their order."""
    needed: list[dict[str, Any]] = []
    texts = list(words)
    for one in reversed(env):  # a variable refers only to what stands before it
        if any(f"$({one['name']})" in text for text in texts):
            needed.insert(0, one)
            texts.append(str(one.get("value", "")))
    return needed
