"""Rules about pods that concern Kubernetes: fields that the API server rejects, DNS, locked memory and probes."""

import re
from collections.abc import Iterator
from typing import Any

from ome_operator import quantity
from ome_operator.lint import locations
from ome_operator.lint.division import locate_flag
from ome_operator.lint.finding import Rule, RuleHit, Severity, rule
from ome_operator.lint.launch import number, references
from ome_operator.lint.pod_values import RefusedValue, refusals
from ome_operator.lint.pods import DEVICES, SHM, needs_rdma
from ome_operator.lint.subject import Manifest, Role, Subject, items, map_at
from ome_operator.util.memoize import memoize_by_identity

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_ABSENT = frozenset({"/readiness", "/liveness", "/healthz", "/readyz", "/livez", "/healthcheck"})
"""Paths that probes often request although SGLang does not serve them."""
_OF_WORKERS = frozenset({"/health", "/health_generate", "/ping"})
"""The paths that SGLang serves on ranks above 0."""
_SLOW = frozenset({"/health", "/health_generate"})


def _pods(subject: Subject) -> Iterator[tuple[Role, Manifest]]:
    yield from ((role, pod) for role in subject.roles for pod in role.pods)


@rule(
    "pod-invalid",
    Severity.ERROR,
    "The API server rejects the pod",
    ignored=(
        "No pod of the new revision is created. After an edit, the dry run fails and the service stays unchanged. For a "
        "new service, the operator creates Services and other objects, but no pods. A condition shows the API server's "
        "message."
    ),
    evidence="The rule uses the types of the package `kubernetes`, and the same checks of pods as Kubernetes; "
    "tests/controlplane/test_pod_values.py compares the rule with a real API server.",
)
def pod_invalid(subject: Subject) -> Iterator[RuleHit]:
    yield from _refusals(subject, late=False)


@rule(
    "pod-unstartable",
    Severity.ERROR,
    "The API server accepts the pod, but no node can start it",
    ignored="The pod is created and never starts, because no image, medium or object has such a name; only the pod's "
    "events report the reason. The container runtime ignores a capability that does not exist, without a "
    "message.",
    evidence="tests/node/test_late_values.py starts a pod with each of these values on a real node.",
)
def pod_unstartable(subject: Subject) -> Iterator[RuleHit]:
    yield from _refusals(subject, late=True)


def _refusals(subject: Subject, *, late: bool) -> Iterator[RuleHit]:
    """Yield the values that the API server refuses. With `late`, yield the values that the API server accepts and the node
    refuses.
    """
    refused = dict.fromkeys((role.component, found) for role, pod in _pods(subject) for found in _values(pod["spec"]))
    for component, found in refused:
        if found.late is late:
            role = next(role for role in subject.roles if role.component == component)
            yield RuleHit(locations.in_pod(role, found.path), f"{role.title}: {found.says}", found.remedy)


@memoize_by_identity(64, grows=False)
def _values(spec: Manifest) -> tuple[RefusedValue, ...]:
    """Return the result of `refusals` as a tuple, which is cached because two rules need it."""
    return tuple(refusals(spec))


@rule(
    "variable-elsewhere",
    Severity.ERROR,
    "A container refers to a variable that only another container of its pod has",
    ignored="The reference is not expanded: the program gets the text `$(NAME)`, and a shell runs NAME as a command.",
    evidence="Each variable belongs to one container; the operator sets its variables in the main container.",
)
def variable_elsewhere(subject: Subject) -> Iterator[RuleHit]:
    for role in subject.roles:
        boxes = [box for pod in role.pods for part in ("initContainers", "containers") for box in items(pod["spec"], part)]
        everywhere = {str(item.get("name")) for box in boxes for item in items(box, "env")}
        found = dict[tuple[str, str], None]()
        for box in boxes:
            own = {str(item.get("name")) for item in items(box, "env")}
            words = [str(word) for part in ("command", "args") for word in _list(box.get(part))]
            words += [str(item["value"]) for item in items(box, "env") if "value" in item]
            missing = (references(words) & everywhere) - own if not box.get("envFrom") else frozenset()
            found.update(dict.fromkeys((str(box.get("name")), name) for name in sorted(missing)))
        for name, variable in found:
            message = f"container {name} refers to $({variable}), which only another container has"
            yield RuleHit(
                locations.component_location(role),
                message,
                f"add {variable} to the env of the container, or write the value itself",
            )


_OURS = frozenset(
    {
        "INFERENCESERVICE_NAME", "LWS_GROUP_SIZE", "LWS_LEADER_ADDRESS", "LWS_WORKER_INDEX", "MODEL_PATH",
        "PARALLELISM_SIZE",
    }
)  # fmt: skip
"""Names of the variables that the operator sets in the main container and that images are unlikely to set."""
_SHELL_REFERENCE = re.compile(r"(?<![\\$])\$(?:\{(\w+)\}|(\w+))")
"""Pattern of a reference to a variable without a default value, in the notation of a shell."""


@rule(
    "variable-misplaced",
    Severity.WARNING,
    "A reference to a variable of the operator in the notation of a shell has no value",
    ignored="A shell replaces the reference by nothing. In the value of a variable, the reference stays unchanged.",
    evidence="Variables belong to one container; the operator sets its variables in the main container. Kubernetes expands "
    "only references of the form $(NAME) in values of variables.",
)
def variable_misplaced(subject: Subject) -> Iterator[RuleHit]:
    for role, pod in _pods(subject):
        main = pod["spec"]["containers"][0]
        ours = {str(item.get("name")) for item in items(main, "env")} & _OURS
        boxes = [box for part in ("initContainers", "containers") for box in items(pod["spec"], part)]
        for box in boxes:
            own, place = {str(item.get("name")) for item in items(box, "env")}, locations.component_location(role)
            script = "\n".join(str(word) for part in ("command", "args") for word in _list(box.get(part)))
            absent = sorted((_shell_names(script) & ours) - own) if box is not main and not box.get("envFrom") else []
            for name in absent:
                if not re.search(rf"\b{name}\+?=|\b(?:read|for|mapfile)\b[^\n;]*\b{name}\b", script):
                    message = f"container {box.get('name')} refers to ${name}, which only another container has"
                    remedy = f"add {name} to the env of the container, or write the value itself"
                    yield RuleHit(place, message, remedy)
            for item in items(box, "env"):
                for name in sorted(_shell_names(str(item.get("value", ""))) & ours):
                    message = f"the variable {item.get('name')} of container {box.get('name')} contains ${{{name}}}"
                    remedy = (
                        f"write $({name})"
                        if name in own
                        else (f"write the value itself, or add {name} to the env of the container")
                    )
                    yield RuleHit(place, f"{message}, which is not expanded", remedy)


def _shell_names(text: str) -> frozenset[str]:
    return frozenset(found[1] or found[2] for found in _SHELL_REFERENCE.finditer(text))


@rule(
    "names-unresolved",
    Severity.ERROR,
    "Pods that use the network of their node (hostNetwork) do not resolve cluster DNS names",
    ignored="Ranks cannot resolve the name of rank 0, and wait until a time-out ends them.",
    evidence="Kubernetes: with hostNetwork, the DNS policy ClusterFirst uses the node's own DNS; "
    "https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/.",
)
def names_unresolved(subject: Subject) -> Iterator[RuleHit]:
    for role in subject.roles:
        alone = any(
            pod["spec"].get("hostNetwork") and pod["spec"].get("dnsPolicy", "ClusterFirst") == "ClusterFirst"
            for pod in role.pods
        )
        if role.size > 1 and alone:
            message = f"{role.title} has hostNetwork, but dnsPolicy is not ClusterFirstWithHostNet"
            yield RuleHit(locations.component_location(role), message, "add dnsPolicy: ClusterFirstWithHostNet")


@rule(
    "ports-shared",
    Severity.WARNING,
    "Pods that use the network of their node (hostNetwork) may use the same port",
    ignored="If two pods with hostNetwork are scheduled to one node, the second engine exits with `address already in use`.",
    evidence=(
        "https://github.com/ome-projects/ome/issues/236; the scheduler keeps two pods off the same node only if both "
        "declare the port."
    ),
)
def ports_shared(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched("sglang"):
        named = role.container.get("ports")
        port = number(start.text("--port"))
        if role.leader["spec"].get("hostNetwork") and 0 < role.per_pod < 8 and not named and port:
            message = f"{role.title} has hostNetwork and {role.per_pod} GPUs in a pod, but declares no port"
            yield RuleHit(locations.field(role, "ports"), message, f"add ports: [{{name: http, containerPort: {port}}}]")


@rule(
    "memory-unlocked",
    Severity.WARNING,
    "A pod mounts its node's RDMA devices but is not permitted to lock memory",
    ignored="If the container runtime limits locked memory, registering a KV cache fails with `Cannot allocate memory`.",
    evidence="https://github.com/kvcache-ai/Mooncake/issues/281; IPC_LOCK lifts the limit (docs/security.md).",
)
def memory_unlocked(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched("sglang"):
        rights = map_at(role.container, "securityContext")
        added = {str(name).upper() for name in _list(map_at(rights, "capabilities").get("add"))}
        by_path = any(
            str(map_at(volume, "hostPath").get("path", "")).startswith(DEVICES)
            for volume in items(role.leader["spec"], "volumes")
        )
        if needs_rdma(role, start) and by_path and not rights.get("privileged") and not added & {"IPC_LOCK", "ALL"}:
            remedy = "add securityContext: {capabilities: {add: [IPC_LOCK]}}"
            yield RuleHit(locations.field(role, "securityContext"), f"{role.title} lacks the capability IPC_LOCK", remedy)


@rule(
    "memory-below-shm",
    Severity.WARNING,
    "A container's memory limit is not above the size of its shared memory",
    ignored="Shared memory counts towards the memory limit, so the container is killed before its shared memory is full.",
    evidence="https://kubernetes.io/docs/concepts/storage/volumes/#emptydir (medium Memory)",
)
def memory_below_shm(subject: Subject) -> Iterator[RuleHit]:
    for role in subject.roles:
        limit = map_at(role.container, "resources", "limits").get("memory")
        shared = _shared(role)
        if limit is not None and shared is not None and _SMALLEST <= quantity.parse(limit) <= quantity.parse(shared):
            message = f"the memory limit of the container is {limit}, but {SHM} may grow to {shared}"
            yield RuleHit(
                locations.field(role, "resources"), message, "raise the memory limit, or lower sizeLimit of the volume"
            )


_SIZES = ("memory", "ephemeral-storage")
_SMALLEST = 1024**2
"""Smallest number of bytes of memory or storage that a container can use. A smaller amount probably lacks its unit."""


@rule(
    "size-without-unit",
    Severity.WARNING,
    "A request or limit of memory or storage is less than one mebibyte",
    ignored="With such a limit the container is killed at its start, or the node evicts its pod. Such a request reserves "
    "nothing.",
    evidence="https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/ (a number without a unit is in "
    "bytes, and 100m is a tenth of a byte)",
)
def size_without_unit(subject: Subject) -> Iterator[RuleHit]:
    for role in subject.roles:
        for part in ("limits", "requests"):
            for name in _SIZES:
                amount = map_at(role.container, "resources", part).get(name)
                if amount is not None and 0 < quantity.parse(amount) < _SMALLEST:
                    digits = (re.match(r"[0-9.]*", str(amount)) or [""])[0]
                    unit = "a unit" if digits == str(amount) else "a larger unit"
                    remedy = f"write {unit}, such as {digits}Gi"
                    message = f"{role.title}: resources.{part}.{name} is {amount}, which is less than 1 MiB"
                    yield RuleHit(locations.field(role, "resources"), message, remedy)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _shared(role: Role) -> Any:
    """Return the sizeLimit of the volume that is mounted at /dev/shm; None if no volume is mounted there, or if it has no
    sizeLimit.
    """
    mounts = {str(mount.get("name")) for mount in items(role.container, "volumeMounts") if mount.get("mountPath") == SHM}
    named = (volume for volume in items(role.leader["spec"], "volumes") if str(volume.get("name")) in mounts)
    return next((map_at(volume, "emptyDir").get("sizeLimit") for volume in named), None)


@rule(
    "host-loopback",
    Severity.ERROR,
    "The engine listens only on the loopback address",
    ignored="Connections of probes and of the Service are refused, so the pod never becomes ready.",
    evidence="SGLang's --host is 127.0.0.1 by default; https://github.com/ai-dynamo/modelexpress/pull/401.",
)
def host_loopback(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched("sglang"):
        alone = len(role.leader["spec"]["containers"]) == 1  # another container in the pod may forward requests
        if alone and start.text("--host") in _LOOPBACK:
            message = f"--host is {start.text('--host')}{'' if start.last_argument('--host') else ', the default'}"
            yield RuleHit(locate_flag(role, start, "--host"), message, "write --host=0.0.0.0")


@rule(
    "probe-page",
    Severity.ERROR,
    "A probe requests a path that the engine does not serve",
    ignored="The probe always gets 404, so the pod never becomes ready or is restarted repeatedly.",
    evidence="SGLang 0.5.23, entrypoints/http_server.py; ranks above 0 serve only /health, /health_generate and /ping; "
    "https://github.com/InftyAI/llmaz/issues/382",
)
def probe_page(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched("sglang"):
        for rank, pod in enumerate(role.pods):
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                asks = map_at(pod["spec"]["containers"][0], probe, "httpGet")
                path = str(asks.get("path", "")).partition("?")[0]
                if path in _ABSENT or (rank and path and path not in _OF_WORKERS):
                    who = "ranks above 0 do" if rank else f"{start.engine} does"
                    remedy = "move the probe to leader.runner, or write path: /health" if rank else "write path: /health"
                    yield RuleHit(locations.field(role, probe), f"{probe} requests {path}, which {who} not serve", remedy)


@rule(
    "probe-hurried",
    Severity.WARNING,
    "A probe of /health has a time-out of one second",
    ignored="/health generates a token, which takes at least a second, so the pod is unready or alternates between "
    "ready and unready.",
    evidence="https://github.com/ai-dynamo/modelexpress/pull/401; config/runtimes/srt/kimi-k2-pd-rt.yaml",
)
def probe_hurried(subject: Subject) -> Iterator[RuleHit]:
    for role, _ in subject.launched("sglang"):
        for probe in ("readinessProbe", "livenessProbe"):
            settings = map_at(role.container, probe)
            path = str(map_at(settings, "httpGet").get("path", "")).partition("?")[0]
            if path in _SLOW and settings.get("timeoutSeconds", 1) == 1:
                yield RuleHit(
                    locations.field(role, probe), f"{probe} requests {path} with a time-out of 1 s", "add timeoutSeconds: 5"
                )


RULES: tuple[Rule, ...] = (
    pod_invalid,
    pod_unstartable,
    variable_elsewhere,
    variable_misplaced,
    names_unresolved,
    ports_shared,
    memory_unlocked,
    memory_below_shm,
    size_without_unit,
    host_loopback,
    probe_page,
    probe_hurried,
)
