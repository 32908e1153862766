"""Rules about the pod of an engine: ports, probes, devices, shared memory, networks."""

from collections.abc import Iterator, Mapping
from typing import Any

from ome_operator import keys, quantity
from ome_operator.engines.routers import is_program, parts
from ome_operator.engines.servers import known_servers
from ome_operator.lint import locations
from ome_operator.lint.division import locate_flag
from ome_operator.lint.finding import Rule, RuleHit, Severity, rule
from ome_operator.lint.launch import ROUTERS, Launch, module, number, one_word
from ome_operator.lint.subject import Manifest, Role, Subject, items, map_at

SHM, DEVICES = "/dev/shm", "/dev/infiniband"
_RDMA = ("rdma", "infiniband", "ib", "roce", "hca", "efa", "sriov")
"""Parts of the names of extended resources that give a container an RDMA device."""


def _mooncake(start: Launch) -> bool:
    """Return whether the arguments select Mooncake over RDMA for the transfer of KV caches."""
    mode = start.text("--disaggregation-mode")
    return mode in ("prefill", "decode") and start.text("--disaggregation-transfer-backend") == "mooncake"


def _tcp(start: Launch) -> str:
    """Return the setting with which Mooncake uses TCP; "" if Mooncake does not use TCP."""
    if start.text("--disaggregation-transfer-backend") == "mooncake_tcp":
        return "--disaggregation-transfer-backend=mooncake_tcp"
    forced = start.env.get("MC_FORCE_TCP", "") == "1"
    return (
        "MC_FORCE_TCP=1"
        if forced
        else "MOONCAKE_PROTOCOL=tcp"
        if start.env.get("MOONCAKE_PROTOCOL", "").lower() == "tcp"
        else ""
    )


def _on_gpus(role: Role, start: Launch) -> bool:
    return role.gpus > 0 and start.text("--device") != "cpu"


def needs_rdma(role: Role, start: Launch) -> bool:
    """Return whether the server transfers KV caches or tokens over RDMA."""
    far = role.size > 1 and start.text("--moe-a2a-backend").startswith("deepep")
    return (_mooncake(start) or far) and _on_gpus(role, start) and not _tcp(start)


@rule(
    "cache-over-tcp",
    Severity.WARNING,
    "KV caches are transferred over TCP",
    ignored=(
        "The KV cache of a prompt can take gigabytes, so the first token is delayed by seconds, and requests time out "
        "under load."
    ),
    evidence="SGLang 0.5.23, arg_groups/pd_disaggregation_hook.py; https://github.com/sgl-project/sglang/issues/23342",
)
def cache_over_tcp(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched("sglang"):
        apart = start.text("--disaggregation-mode") in ("prefill", "decode")
        if apart and _on_gpus(role, start) and (why := _tcp(start)):
            place = locate_flag(role, start, "--disaggregation-transfer-backend")
            yield RuleHit(
                place, f"{why} sends KV caches over TCP", "remove this setting, and give the pods RDMA devices (docs/gpu.md)"
            )


@rule(
    "ib-device-missing",
    Severity.WARNING,
    "The network devices of Mooncake are not named",
    ignored=(
        "Mooncake selects a device itself. It may choose a device of the storage network or a device whose link is "
        "down, or fall back to TCP."
    ),
    evidence="SGLang 0.5.23, arg_groups/validation_hook.py, validate_ib_devices: without a named device, Mooncake "
    "searches for devices itself.",
)
def ib_device_missing(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched("sglang"):
        if _mooncake(start) and _on_gpus(role, start) and not _tcp(start) and not start.text("--disaggregation-ib-device"):
            remedy = "add --disaggregation-ib-device=mlx5_0,… with the devices that ibv_devices lists on the nodes"
            yield RuleHit(locations.arguments(role), "--disaggregation-ib-device is not given", remedy)


@rule(
    "rdma-missing",
    Severity.WARNING,
    "RDMA is needed, but the pod has no device for it",
    ignored="NCCL and Mooncake silently fall back to TCP, which is many times slower; if devices are named, the "
    "engine exits.",
    evidence="A container can access /dev/infiniband only if it has a resource of a device plugin or a hostPath volume, "
    "or is privileged; config/runtimes/srt/kimi-k2-pd-rt.yaml.",
)
def rdma_missing(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched("sglang"):
        if needs_rdma(role, start) and not all(_sees_rdma(pod) for pod in role.pods):
            why = (
                "KV caches are transferred by Mooncake" if _mooncake(start) else "experts are distributed over several nodes"
            )
            remedy = "request the RDMA resource of your device plugin, or mount /dev/infiniband"
            yield RuleHit(locations.field(role, "resources"), f"{why}, but the pod requests no RDMA device", remedy)


def _sees_rdma(pod: Manifest) -> bool:
    spec = pod["spec"]
    box = spec["containers"][0]
    asked = [*map_at(box, "resources", "limits"), *map_at(pod, "metadata", "annotations").values()]
    resources = any(
        part in str(name).lower().replace("-", "/").replace("_", "/").split("/") or f"/{part}" in str(name).lower()
        for name in asked
        for part in _RDMA
    )
    mounted = any(DEVICES in str(map_at(volume, "hostPath").get("path", "")) for volume in items(spec, "volumes"))
    claims = bool(map_at(box, "resources").get("claims"))
    return resources or mounted or claims or bool(map_at(box, "securityContext").get("privileged"))


@rule(
    "shm-small",
    Severity.WARNING,
    "A pod with several GPUs has a small /dev/shm, such as the default of 64 MiB",
    ignored="NCCL or the tokenizer's workers exit with a bus error or `No space left on device`, often only under load.",
    evidence="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html (shared memory); a container "
    "has 64 MiB unless it mounts more.",
)
def shm_small(subject: Subject) -> Iterator[RuleHit]:
    for role, _ in subject.launched("sglang", "vllm"):
        mounts = [str(mount.get("mountPath", "")).rstrip("/") for mount in items(role.container, "volumeMounts")]
        if role.per_pod > 1 and (size := _tiny(role)):
            message = f"{role.title} has {role.per_pod} GPUs in a pod, but its {SHM} has only {size}"
            yield RuleHit(locations.component_location(role), message, "write sizeLimit: 32Gi")
        if role.per_pod > 1 and SHM not in mounts and not role.leader["spec"].get("hostIPC"):
            remedy = f"add a volume with emptyDir: {{medium: Memory, sizeLimit: 32Gi}} and mount it at {SHM}"
            yield RuleHit(
                locations.field(role, "volumeMounts"),
                f"{role.title} has {role.per_pod} GPUs in a pod but mounts no {SHM}",
                remedy,
            )


def _tiny(role: Role) -> str:
    """Return the sizeLimit of the volume that is mounted at /dev/shm if it is below 1 GiB; otherwise ""."""
    mounted = {mount.get("name") for mount in items(role.container, "volumeMounts") if mount.get("mountPath") == SHM}
    for volume in items(role.leader["spec"], "volumes"):
        limit = map_at(volume, "emptyDir").get("sizeLimit")
        if volume.get("name") in mounted and limit is not None and 0 < quantity.parse(limit) < 2**30:
            return str(limit)
    return ""


@rule(
    "port-differs",
    Severity.ERROR,
    "The program does not listen on the port that its container declares",
    ignored="The Service and the probes use a port on which nothing listens, so the pod never becomes ready.",
    evidence="The operator uses the port named http, or else the first port, of the main container of rank 0 "
    "(docs/engines.md).",
)
def port_differs(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched():
        given, ports = start.last_argument("--port"), items(role.container, "ports")
        named = next((port for port in ports if port.get("name") == "http"), ports[0] if ports else None)
        told = number(given.values[0]) if given is not None and given.values else None
        declared = named.get("containerPort") if named is not None else None
        # A port that is not a number is reported by the rule `pod-invalid`.
        if told is not None and isinstance(declared, int) and declared != told:
            message = f"--port is {told}, but the container declares port {declared}"
            yield RuleHit(locations.field(role, "ports"), message, f"write containerPort: {told}")


@rule(
    "router-port-differs",
    Severity.ERROR,
    "The router connects to engines on a port on which the engines do not listen",
    ignored="The router finds no healthy worker, and answers every request with 503.",
    evidence="sglang-router 0.3.2: --service-discovery-port (80 by default) is the port of every worker.",
)
def router_port_differs(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched(*ROUTERS):
        if not start.is_on("--service-discovery"):
            continue
        asked = number(start.text("--service-discovery-port"))
        for engine, server in subject.launched("sglang"):
            port = number(server.text("--port"))
            if asked is not None and port is not None and asked != port:
                message = f"the router connects to port {asked}, but {engine.title} listens on {port}"
                yield RuleHit(
                    locate_flag(role, start, "--service-discovery-port"), message, f"write --service-discovery-port={port}"
                )
                break


@rule(
    "liveness-blind",
    Severity.WARNING,
    "A liveness probe requests a path that answers 200 even if the engine hangs",
    ignored="The probe detects no hang. If an answer is slow under load, the kubelet restarts a rank, which ends the group.",
    evidence="Our own measurement: SGLang's ranks above 0 answer /health whatever happens; sglang-router answers /health "
    "and /liveness without workers; "
    "vLLM's /health stays 200 when a worker is killed (docs/engines.md).",
)
def liveness_blind(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched("sglang", "vllm", *ROUTERS):
        pods: tuple[tuple[str, Manifest | None], ...] = (("leader", role.leader), ("worker", role.worker))
        for part, pod in pods:
            path = _asks(pod)
            blind = path in ("/health", "/liveness") and (part == "worker" or start.engine in ("vllm", *ROUTERS))
            if pod is not None and blind:
                who = "ranks above 0 answer" if part == "worker" else f"{start.engine} answers"
                remedy = "remove the probe, because the operator detects failed ranks itself (docs/recovery.md)"
                yield RuleHit(locations.field(role, "livenessProbe"), f"{who} {path} with 200 in every state", remedy)


def _asks(pod: Manifest | None) -> str:
    box: Mapping[str, Any] = pod["spec"]["containers"][0] if pod is not None else {}
    return str(map_at(box, "livenessProbe", "httpGet").get("path", "")).partition("?")[0]


@rule(
    "probe-port",
    Severity.ERROR,
    "A probe names a port that the container does not declare",
    ignored="The probe always fails, so the pod never becomes ready or is restarted repeatedly.",
    evidence="Kubernetes resolves a probe's named port only among the container's ports.",
)
def probe_port(subject: Subject) -> Iterator[RuleHit]:
    for role in subject.roles:
        for pod in role.pods:
            box = pod["spec"]["containers"][0]
            named = {port.get("name") for port in items(box, "ports")}
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                for how in ("httpGet", "tcpSocket"):
                    port = map_at(box, probe, how).get("port")
                    if isinstance(port, str) and not port.isdigit() and port not in named:
                        message = (
                            f"{probe} uses port {port}, but the container has "
                            f"{', '.join(sorted(map(str, named))) or 'no named port'}"
                        )
                        yield RuleHit(
                            locations.field(role, probe),
                            message,
                            "write the name or the number of a port of the container",
                        )


@rule(
    "network-unnamed",
    Severity.NOTE,
    "No setting tells NCCL which network to use between nodes",
    ignored="NCCL may use the management network.",
    evidence="docs/gpu.md; the profiles of the annotation rdma.ome.io/auto-inject set interfaces and devices.",
)
def network_unnamed(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched("sglang", "vllm"):
        named = any(name.startswith(("NCCL_", "GLOO_")) for name in start.names)
        if role.size > 1 and _on_gpus(role, start) and not named and role.annotations.get(keys.RDMA_INJECT) != "true":
            remedy = f'add the annotations {keys.RDMA_INJECT}: "true" and {keys.RDMA_PROFILE}, or set the variables NCCL_…'
            yield RuleHit(
                locations.component_location(role),
                f"{role.title} has {role.size} pods, but no setting names a network",
                remedy,
            )


@rule(
    "command-one-word",
    Severity.ERROR,
    "A command line is written as a single word",
    ignored="The container does not start: no program has a name that contains the arguments.",
    evidence="The container runtime executes the first entry of `command` without a shell: `executable file not found`.",
)
def command_one_word(subject: Subject) -> Iterator[RuleHit]:
    for role in subject.roles:
        if word := one_word(role.container):
            message = f"{role.title}: the first entry of command is {word[:80]!r}"
            remedy = f"write [{', '.join(word.split())[:200]}], or [sh, -c, …] for a script"
            yield RuleHit(locations.field(role, "command"), message, remedy)


@rule(
    "module-joined",
    Severity.WARNING,
    "The option -m of Python and the module of a program are written as one word",
    ignored="The program starts, but the operator does not recognize it: an engine gets no probes, and a router no registry "
    "of its workers.",
    evidence="ome_operator/engines/servers.py and ome_operator/engines/routers.py compare whole words of the command.",
)
def module_joined(subject: Subject) -> Iterator[RuleHit]:
    programs = {start[0] for server in known_servers() for start in server.starts}
    for role in subject.roles:
        for word in parts(role.container):
            name = module(word)
            if name != word and (name in programs or is_program(name)):
                message = f"{role.title}: {word} contains the name of the program"
                yield RuleHit(locations.field(role, "command"), message, f"write -m and {name} as two entries of the list")


RULES: tuple[Rule, ...] = (
    command_one_word,
    module_joined,
    port_differs,
    router_port_differs,
    probe_port,
    shm_small,
    cache_over_tcp,
    ib_device_missing,
    rdma_missing,
    network_unnamed,
    liveness_blind,
)
