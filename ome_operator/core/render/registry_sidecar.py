"""Render the worker registry as a sidecar of routers, with its arguments and a security context without privileges."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ome_operator import keys, quantity
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.render import meta, router_key
from ome_operator.core.render.statefulsets import StoredRole, statefulset_prefix
from ome_operator.engines.routers import BOOTSTRAP_PORT, SglangRouter, sglang_router, value

NAME = "ome-registry"
OFF = "false"
TYPES = {keys.ENGINE: "prefill", keys.DECODER: "decode"}


class Groups(NamedTuple):
    """The groups of one role of a revision, in the form that the registry needs."""

    component: str
    port: int
    """Port on which leaders serve HTTP."""
    pods: int
    """Pods per group."""
    statefulset_prefix: str
    """Prefix of the names of the role's StatefulSets. The registry accepts a pod as a worker only if a StatefulSet with
    this prefix owns the pod."""


class Sidecar(NamedTuple):
    """Settings of the registry beside a router that do not come from the router's own spec: its image, and the groups of
    engines.
    """

    image: str
    """Image of the registry; "" if routers get no registry."""
    roles: tuple[Groups, ...] = ()
    bootstrap_port: int = BOOTSTRAP_PORT
    pull_secrets: tuple[str, ...] = ()
    """Names of the image pull Secrets, in the service's namespace."""


def sidecar(image: str, roles: Mapping[str, StoredRole], pull_secrets: tuple[str, ...] = ()) -> Sidecar:
    """Return the settings of the registries beside the routers of a revision. `roles` contains the stored roles of the
    revision.
    """
    words: list[str] = []
    if keys.ENGINE in roles:
        box = roles[keys.ENGINE].leader["spec"]["template"]["spec"]["containers"][0]
        words = [word for part in ("command", "args") for word in box.get(part) or () for word in str(word).split()]
    port = value(words, "--disaggregation-bootstrap-port") or ""
    # A fixed order, because manifests rendered now have to equal those read back from the API server.
    groups = tuple(
        Groups(name, roles[name].port, roles[name].size, statefulset_prefix(roles[name])) for name in TYPES if name in roles
    )
    number = quantity.whole_number(port)
    return Sidecar(image, groups, BOOTSTRAP_PORT if number is None else number, pull_secrets)


def with_registry(
    pod: Manifest, owner: meta.Owner, revision: str, annotations: Mapping[str, str], settings: Sidecar
) -> Manifest:
    """Return the router's pod with the registry container. The container is added only to an SGLang router that fits the
    roles of the revision.

    The registry is a native sidecar, so it starts before the router and stops after the router.
    """
    router = sglang_router(pod["containers"][0])
    if router is None or not settings.image or annotations.get(keys.REGISTRY) == OFF:
        return pod
    if not settings.roles or router.pd != (len(settings.roles) > 1):
        return pod
    box = _container(owner, revision, router, settings)
    # Our key is passed as a variable: as an argument it would be visible in the node's process list.
    needed = [*box["args"], *([router_key.REFERENCE] if router.key == router_key.REFERENCE else [])]
    if env := _environment(needed, pod["containers"][0].get("env") or []):
        box["env"] = env
    if sources := pod["containers"][0].get("envFrom"):
        box["envFrom"] = sources
    return {**pod, "initContainers": [*(pod.get("initContainers") or ()), box], **_pulled(pod, settings)}


def _pulled(pod: Manifest, settings: Sidecar) -> Manifest:
    """Return the field `imagePullSecrets`: the Secrets of the pod, followed by the Secrets of the registry, because the
    kubelet tries them in this order; {} if the registry adds no Secret.
    """
    own = pod.get("imagePullSecrets") or []
    names = {secret["name"] for secret in own}
    more = [{"name": name} for name in settings.pull_secrets if name not in names]
    return {"imagePullSecrets": [*own, *more]} if more else {}


def _container(owner: meta.Owner, revision: str, router: SglangRouter, settings: Sidecar) -> Manifest:
    args = [
        "registry",
        f"--router={router.address}",
        f"--namespace={owner.namespace}",
        f"--selector={meta.requirement({**meta.labels(owner.name), keys.REVISION: revision})}",
    ]
    for role in settings.roles:
        kind = TYPES[role.component] if router.pd else "regular"
        args.append(
            f"--role={role.component}:{kind}:{router.worker_port or role.port}:{role.pods}:{role.statefulset_prefix}"
        )
    args += [f"--bootstrap-port={settings.bootstrap_port}"] if router.pd else []
    args += [f"--key={router.key}"] if router.key not in ("", router_key.REFERENCE) else []
    args += [f"--worker-key={router.worker_key}"] if router.worker_key else []
    args += [f"--router-metrics={router.metrics}"] if router.metrics else []
    probe = {"httpGet": {"path": "/healthz", "port": keys.REGISTRY_PORT}, "timeoutSeconds": 3}
    return {
        "name": NAME,
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "restartPolicy": "Always",
        "args": args,
        "ports": [{"name": NAME, "containerPort": keys.REGISTRY_PORT, "protocol": "TCP"}],
        "startupProbe": {**probe, "periodSeconds": 1, "failureThreshold": 60},
        "livenessProbe": {**probe, "periodSeconds": 10, "failureThreshold": 6},
        # Measured memory of the registry: 49 MiB with 3 pods, 58 MiB with 128 pods.
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
    """Return the variables of `env` to which `words` refer as $(NAME), directly or through other variables, in their
    original order.
    """
    needed: list[dict[str, Any]] = []
    texts = list(words)
    for variable in reversed(env):  # a variable can refer only to earlier variables
        if any(f"$({variable['name']})" in text for text in texts):
            needed.insert(0, variable)
            texts.append(str(variable.get("value", "")))
    return needed
