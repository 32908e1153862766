"""Simulated services for the pages of `ome ui`, some of them with faults:

* Kimi K2 on 16 nodes, with a rank that crashes
* a service with a rollout in progress
* a service that waits for capacity
* a service whose image is missing
* a frozen service
* a service with texts of hostile users
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.core.observed.objects import Deps, Pod
from tests.support import parts
from tests.support.bodies import Cluster, Manifest, ago, child, event, held, node, pod, record, service
from tests.support.simulator import World

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 98.00 GiB, of which 61.12 GiB are free."
FULL = (
    "0/24 nodes are available: 20 Insufficient nvidia.com/gpu, 3 node(s) didn't match Pod's node affinity/selector, "
    "1 node(s) were unschedulable."
)
HOSTILE = '<script>document.title="owned"</script><img src=x onerror=alert(1)>"\'&\u202etxt.exe\x1b[31m'


def grown(world: World) -> World:
    """Return the simulated cluster (a World) of a service after all its pods have become ready."""
    while world.condition("Scaled").get("status") != "True":
        world.carry_out(world.sync())
        world.step()
    world.settle()
    return world


def made(made_of: tuple[InferenceService, Deps], name: str, namespace: str, seed: int = 1) -> World:
    """Return the simulated cluster (a World) of a new service with this name."""
    found, deps = made_of
    return World(replace(found, name=name, namespace=namespace, uid=f"uid-{namespace}-{name}"), deps, seed)


Change = Callable[[Pod], Pod]


def put(
    cluster: Cluster, world: World, nodes: Iterator[str], change: Change = lambda facts: facts, **metadata: Any
) -> Manifest:
    """Copy the service of a world with its objects and pods into the cluster. The engine pods get the nodes `nodes` in
    their order. `change` is applied to the facts of each pod, and `metadata` are fields of the service's metadata. Return
    the body of the service.
    """
    name, namespace = world.service.name, world.service.namespace
    order = (keys.ENGINE, keys.DECODER)
    facts = sorted(world.observed().pods, key=lambda each: (each.component not in order, *each[5:9]))
    placed = [each._replace(node=next(nodes) if each.component in order else "cpu-00") for each in facts]
    changed = [change(each) for each in placed]
    body = service(world, changed, name, namespace, **metadata)
    cluster.add("InferenceService", body)
    for kind in ("StatefulSet", "Deployment", "ControllerRevision"):
        for number, live in enumerate(each for (of, _), each in world.children.items() if of == kind):
            cluster.add(kind, child(live, world.service.uid, days=12 - 5 * min(number, 2)))
    uid = world.service.uid  # the versions of each world start from 1
    unique = (each._replace(uid=f"{uid}.{each.uid}", workload_uid=f"{uid}.{each.workload_uid}") for each in changed)
    cluster.add("Pod", *map(pod, unique))
    return body


def edited(world: World, image: str, passes: int = 0) -> World:
    """Change the image of the service's engines, and run this number of reconciliations."""
    spec = world.service.spec.dump()
    box = {"runner": {"image": image}}
    spec["engine"] = {**(spec.get("engine") or {}), **box}
    body = {
        "kind": "InferenceService",
        "metadata": {"name": world.service.name, "namespace": world.service.namespace, "uid": world.service.uid},
        "spec": spec,
    }
    world.edit(parts.ensure_valid(InferenceService.parse(body)))
    world.run(passes)
    return world


def crashed(facts: Pod) -> Pod:
    """Make rank 7 of the decode group fail with an error of an engine that has no GPU memory for its KV cache."""
    if (facts.component, facts.rank) != (keys.DECODER, 7):
        return facts
    return facts._replace(ready=False, restarts=6, reason="CrashLoopBackOff", message=OOM)


def unplaced(facts: Pod) -> Pod:
    """Make the pod pending with the scheduler's message that no node has capacity."""
    if facts.component == keys.ROUTER:
        return facts
    return facts._replace(node="", ready=False, reason="Unschedulable", message=FULL)


def pulling(facts: Pod) -> Pod:
    """Make the pod wait for an image that does not exist."""
    if facts.component == keys.ROUTER:
        return facts
    said = 'Back-off pulling image "registry.example/sglang:v0.5.24-typo": not found'
    return facts._replace(ready=False, reason="ImagePullBackOff", message=said)


def simple(name: str, namespace: str, groups: int = 4, **more: Any) -> World:
    """Return a service with groups of two pods with a GPU each."""
    strategy = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    named = {"model": {"name": name}, "runtime": {"name": f"srt-{name}"}}
    asked = parts.service(engine={"minReplicas": groups}, router={}, rollout=strategy, **named, **more)
    runtime = replace(parts.simple(size=2), name=f"srt-{name}")
    return made((asked, parts.deps(parts.model(name=name), runtime)), name, namespace)


WORDS = [
    "[2026-01-01 10:02:41 TP7 EP7] Load weight begin. avail mem=139.21 GB",
    "[2026-01-01 10:09:12 TP7 EP7] Load weight end. type=DeepseekV3ForCausalLM, avail mem=61.12 GB",
    "[2026-01-01 10:09:14 TP7 EP7] KV Cache is allocated. #tokens: 1048576, KV size: 98.00 GB",
    "Traceback (most recent call last):",
    '  File "/sgl-workspace/sglang/python/sglang/srt/mem_cache/memory_pool.py", line 903, in _create_buffers',
    "    torch.zeros((self.size + self.page_size, 1, self.kv_cache_dim), dtype=self.store_dtype, device=self.device)",
    OOM,
]


def fleet(*, kimi: bool = True, hostile: bool = True) -> Cluster:
    """Return a new cluster with the services that the head of this module names. Without `kimi` or `hostile`, it lacks Kimi
    K2, or the service with hostile texts. The caller may change it.
    """
    return deepcopy(_fleet(kimi, hostile))


@cache
def _fleet(kimi: bool, hostile: bool) -> Cluster:
    cluster = Cluster()
    if kimi:
        _kimi(cluster)
    small = (f"h200-{16 + number // 8:02}" for number in range(10**6))
    rolling = edited(grown(simple("qwen3-coder", "code")), "engine:2")
    _until_half(rolling)
    put(cluster, rolling, small)
    put(cluster, grown(simple("llama-scout", "chat", 2)), small)
    put(cluster, grown(simple("gpt-oss-120b", "chat", 3)), small)
    put(cluster, grown(simple("embedder", "search", 1)), small, creationTimestamp=ago(hours=5))
    put(cluster, _unborn(simple("minimax-m2", "research", 2)), iter([""] * 99), unplaced, creationTimestamp=ago(minutes=26))
    put(cluster, grown(simple("glm-4-6", "research", 1)), small, pulling, creationTimestamp=ago(minutes=44))
    frozen = grown(simple("deepseek-v3", "prod", 2))
    frozen.service = replace(
        frozen.service, annotations={**frozen.service.annotations, keys.FREEZE: "2026-01-01T09:00:00Z anna: storage moves"}
    )
    put(cluster, frozen, small)
    if hostile:
        _hostile(cluster, small)
    cluster.add("Node", *(node(f"h200-{number:02}") for number in range(22)))
    cluster.add("Node", node("h200-22", cordoned=True), node("h200-23", ready=False), node("cpu-00", gpus=0))
    _weights(cluster)
    runtime = {"name": "srt-qwen3-coder", "generation": 3}
    rollout = {
        "generation": 3, "state": "Rolling", "wave": 2, "waves": 4, "size": 10, "services": 24, "done": 4, "rolling": 2,
        "waiting": 18, "failed": 0,
    }  # fmt: skip
    cluster.add(
        "ClusterServingRuntime", {"kind": "ClusterServingRuntime", "metadata": runtime, "status": {"rollout": rollout}}
    )
    return cluster


def _unborn(world: World) -> World:
    """Return the world when its pods exist and none of its engines has ever started."""
    world.healthy = lambda live: live.labels[keys.COMPONENT] == keys.ROUTER
    world.run(40)
    return world


def _until_half(world: World) -> None:
    """Run reconciliations until half of the groups have the new revision."""
    for _ in range(200):
        leaders = [each for each in world.observed().pods if each.component == keys.ENGINE and each.rank == 0 and each.ready]
        new = sum(each.revision == world.service.status["revision"].rpartition("→")[2] for each in leaders)
        if 2 <= new < len(leaders) and "→" in world.service.status["revision"]:
            return
        world.run(1)
    raise AssertionError("the rollout never reached its half")


def _kimi(cluster: Cluster) -> None:
    world = grown(World(*parts.kimi(), seed=1))
    nodes = (f"h200-{number:02}" for number in range(16))
    body = put(cluster, world, nodes, crashed)
    ill = next(each for each in cluster.objects["Pod"] if each["metadata"]["labels"].get(keys.POD_INDEX) == "7")
    cluster.logs[ill["metadata"]["name"]] = WORDS
    cluster.add(
        "Event",
        event(body, "DecoderReady", "decode group 0: rank 7 crashes again and again", minutes=12),
        event(ill, "BackOff", "Back-off restarting failed container ome-container", minutes=1),
        event(ill, "Pulled", 'Container image "lmsysorg/sglang:v0.5.23" already present on machine', "Normal", minutes=31),
    )


def _weights(cluster: Cluster) -> None:
    for number in range(16):
        cluster.add("NodeModels", record(f"h200-{number:02}", held("kimi-k2-instruct")))
    speed = {"speed": 1_240_000_000}
    cluster.add("NodeModels", record("h200-20", held("kimi-k2-instruct", "Updating", 0.62, **speed), held("minimax-m2")))
    cluster.add("NodeModels", record("h200-21", held("kimi-k2-instruct", "Updating", 0.31, **speed)))
    failed = "no space left on /raid: 412 GB are free, and 1.03 TB are wanted"
    cluster.add("NodeModels", record("h200-22", held("kimi-k2-instruct", "Failed", 0.05, message=failed)))


def _hostile(cluster: Cluster, nodes: Iterator[str]) -> None:
    """Add a service with hostile texts. Kubernetes validates names; anyone can choose annotations, messages, and texts of
    containers and conditions.
    """
    world = grown(simple("hostile", "zz-evil", 1))
    world.service = replace(world.service, annotations={**world.service.annotations, keys.FREEZE: HOSTILE})

    def ill(facts: Pod) -> Pod:
        return facts._replace(ready=False, restarts=2, reason="CrashLoopBackOff", message=HOSTILE)

    body = put(cluster, world, nodes, ill)
    body["status"]["conditions"].append(
        {"type": "Advice", "status": "True", "reason": HOSTILE, "message": HOSTILE, "lastTransitionTime": HOSTILE}
    )
    body["metadata"]["labels"] = {"x": HOSTILE}
    body["metadata"]["creationTimestamp"] = HOSTILE
    body["status"]["url"] = f"javascript:{HOSTILE}"
    for each in cluster.objects["Pod"]:
        if each["metadata"]["namespace"] == "zz-evil":
            cluster.logs[each["metadata"]["name"]] = [HOSTILE, "</pre></section>" + HOSTILE]
            cluster.add("Event", event(each, HOSTILE, HOSTILE))
    cluster.add("NodeModels", record("h200-19", held(HOSTILE, "Failed", 0.1, message=HOSTILE)))


def many(services: int = 100, pods: int = 1000) -> Cluster:
    """Return a cluster with this number of services and of engine pods; every tenth service has a fault."""
    cluster = Cluster()
    size = max(1, pods // services)
    world = grown(made((parts.service(engine={}, router={}), parts.deps(parts.model(), parts.simple(size=size))), "s", "t"))
    nodes = (f"node-{number // 8:03}" for number in range(10**6))
    for number in range(services):
        name = f"service-{number:03}"
        renamed = _renamed(world, name)
        put(cluster, renamed, nodes, (lambda facts: facts._replace(ready=False, reason="CrashLoopBackOff", message=OOM))
            if number % 10 == 3 else (lambda facts: facts))  # fmt: skip
    cluster.add("Node", *(node(f"node-{number:03}") for number in range((services * size + 7) // 8)))
    return cluster


def _renamed(world: World, name: str) -> World:
    """Return the world under another name."""
    uid = f"uid-{name}"

    def called(was: str) -> str:
        return name + was.removeprefix(world.service.name)

    copy = World(replace(world.service, name=name, uid=uid, namespace="team"), world.deps, seed=1)
    for (kind, was), live in world.children.items():
        labels = {**live.manifest["metadata"].get("labels", {}), keys.SERVICE: name}
        metadata = {**live.manifest["metadata"], "name": called(was), "namespace": "team", "labels": labels}
        moved = replace(live, manifest={**live.manifest, "metadata": metadata}, uid=f"{uid}-{live.uid}", owner=uid)
        copy.children[kind, called(was)] = moved
    for was, live_pod in world.pods.items():
        labels = {**live_pod.labels, keys.SERVICE: name}
        copy.pods[called(was)] = replace(
            live_pod, name=called(was), uid=f"{uid}-{live_pod.uid}", labels=labels,
            workload=called(live_pod.workload), workload_uid=f"{uid}-{live_pod.workload_uid}",
        )  # fmt: skip
    return copy
