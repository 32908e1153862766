"""Tests of the message about why a service is not ready, with equal problems grouped."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ome_operator.describe import draw
from ome_operator.describe.diagnosis import (
    EVENTS,
    ROUTINE,
    SeenEvent,
    ServiceTrouble,
    find_trouble,
    merge_events,
    scheduler_reasons,
)
from ome_operator.describe.tree import tree
from tests.support import parts
from tests.support.simulator import World
from tests.unit.core.resolve.test_finetuned import weight
from tests.unit.describe.test_tree import body, grown

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FULL = "0/16 nodes are available: 12 Insufficient nvidia.com/gpu, 4 node(s) had untolerated taint {ome.io/real: true, a: b}."


def asked(world: World, events: tuple[SeenEvent, ...] = (), **pods: Any) -> ServiceTrouble:
    """Return the problems of a service whose decode pods all have these changes."""
    observed = world.observed()
    changed = tuple(pod._replace(**pods) if pod.component == "decoder" else pod for pod in observed.pods)
    one = body(world)
    return find_trouble(tree(one, replace(observed, pods=changed)), one["status"].get("conditions") or (), events)


def text(found: ServiceTrouble) -> str:
    from rich.console import Console

    screen = Console(width=200, highlight=False)
    with screen.capture() as got:
        for line in draw.draw_trouble(found, NOW):
            screen.print(line)
    return got.get()


def test_unschedulable_pods_are_grouped_into_one_paragraph() -> None:
    world = grown(World(*parts.kimi(), seed=1))
    found = asked(world, ready=False, reason="Unschedulable", message=FULL)
    (one,) = found.pods
    assert (one.role, len(one.pods)) == ("decode", 12)
    assert one.lacks == ("12 nodes: Insufficient nvidia.com/gpu", "4 nodes: untolerated taint {ome.io/real: true, a: b}")
    assert one.next.endswith("kubectl get nodes -L models.ome.io/clusterbasemodel.kimi-k2-instruct")
    assert "decode  12 pods Unschedulable\n  12 nodes: Insufficient nvidia.com/gpu\n" in text(found)


def test_holders_of_nodes_follow_the_scheduler_message() -> None:
    """Below the scheduler's words, the message names the services that hold the nodes. Only the condition of the component
    names them; no pod does.
    """
    world = grown(World(*parts.kimi(), seed=1))
    observed, one = world.observed(), body(world)
    pods = tuple(pod._replace(ready=False, reason="Unschedulable", message=FULL) for pod in observed.pods)
    held = "of the nodes that its pods could take, 16 are held by team/other, which is serving"
    told = [{"type": "DecoderReady", "status": "False", "reason": "Unschedulable", "message": f"decode 0/12: x; {held}"}]
    found = {stuck.role: stuck.lacks for stuck in find_trouble(tree(one, replace(observed, pods=pods)), told, ()).pods}
    assert found["decode"][-1] == held and held not in found["prefill"]


@pytest.mark.parametrize(
    ("message", "free"),
    [
        ("0/16 nodes are available: 16 node(s) didn't match Pod's node affinity/selector.", False),
        ("0/16 nodes are available: 4 Insufficient nvidia.com/gpu, 12 node(s) had untolerated taint {a: b}.", True),
        ("no nodes", True),
    ],
)
def test_freeing_gpus_is_suggested_only_if_nodes_lack_gpus(message: str, free: bool) -> None:
    found = asked(grown(World(*parts.kimi(), seed=1)), ready=False, reason="Unschedulable", message=message)
    assert [one.next.startswith("free GPUs (who holds them: ome nodes), ") for one in found.pods] == [free]
    assert free or found.pods[0].next.startswith("label nodes, or check taints and requests")


def test_crash_suggests_the_logs_of_its_group() -> None:
    found = asked(grown(World(*parts.kimi(), seed=1)), ready=False, reason="CrashLoopBackOff", message="out of memory")
    step = "ome logs kimi-k2-instruct -n kimi-k2-instruct --role decode --group 0 --previous"
    assert [one.next for one in found.pods] == [step]
    assert f"→ {step}" in text(found)


@pytest.mark.parametrize("message", ["", "no nodes", "0/3 nodes are available: pod has a claim that waits."])
def test_unknown_scheduler_messages_are_not_parsed(message: str) -> None:
    assert scheduler_reasons(message) == []


def test_conditions_not_explained_by_pods_are_reported() -> None:
    world = World(parts.service(engine={}), parts.deps(parts.simple(router=False)), seed=1)
    world.carry_out(world.sync())
    found = asked(world)
    assert [(one.condition, one.reason) for one in found.findings] == [("ModelReady", "BaseModelNotFound")]
    assert not found.ready


@pytest.mark.parametrize(("role", "kind"), [("router", "Deployment"), ("decode", "StatefulSet")])
def test_missing_pod_names_the_workload_that_creates_it(role: str, kind: str) -> None:
    world = grown(World(*parts.kimi(), seed=1))
    component = {"decode": "decoder"}.get(role, role)
    world.pods = {name: pod for name, pod in world.pods.items() if pod.labels["component"] != component}
    (stuck,) = (one for one in asked(world).pods if one.role == role)
    assert f"until its {kind} creates the pod" in stuck.next


def test_ready_service_has_no_findings() -> None:
    found = asked(grown(World(*parts.kimi(), seed=1)))
    assert (found.ready, found.findings, found.pods, found.events) == (True, (), (), ())


def test_equal_events_are_counted_and_newest_come_first() -> None:
    def seen(minutes: int, message: str, count: int = 1, type_: str = "Warning") -> SeenEvent:
        return SeenEvent(NOW - timedelta(minutes=minutes), type_, "Failed", "Pod a", message, count)

    many = tuple(seen(60 + number, f"old {number}") for number in range(20))
    few = seen(3, "x", 2), seen(2, "y"), seen(9, "x"), seen(1, "z", 1, "Normal")
    found = asked(World(*parts.kimi(), seed=1), (*few, *many))
    assert [(one.message, one.count) for one in found.events[:2]] == [("y", 1), ("x", 3)]
    assert len(found.events) == EVENTS
    assert "3 min ago  Failed of Pod a (3 times): x" in text(found)


def test_routine_pod_events_do_not_hide_group_events() -> None:
    def seen(minutes: int, reason: str, message: str) -> SeenEvent:
        return SeenEvent(NOW - timedelta(minutes=minutes), "Normal", reason, "Pod a", message, 1)

    steps = [seen(number, reason, f"{number}") for reason in sorted(ROUTINE) for number in range(1, 40)]
    whole = [seen(50, "GroupRecycled", "decode group 0"), seen(49, "GroupRecycled", "decode group 1")]
    found = merge_events([*whole, *steps])
    assert {(one.reason, one.message, one.count) for one in found} == {
        *((reason, "1", 39) for reason in ROUTINE),
        *((one.reason, one.message, 1) for one in whole),
    }
    assert [one.message for one in found[-2:]] == ["decode group 1", "decode group 0"]


def weighed() -> World:
    """Return a service with a namespaced BaseModel and a LoRA weight, whose pods exist."""
    model = replace(parts.model(), kind="BaseModel", namespace=parts.NAMESPACE)
    service = parts.service(model={"name": "tiny", "fineTunedWeights": ["poet"]}, engine={})
    trained = weight("poet", baseModelRef={"name": "tiny", "namespace": parts.NAMESPACE})
    deps = replace(parts.deps(model, parts.simple(router=False)), weights={"poet": trained}, holders={})
    world = World(service, deps, seed=1)
    for _ in range(2):
        world.carry_out(world.sync())
        world.step()
    return world


def test_suggested_step_names_the_node_labels_that_pods_need() -> None:
    """The suggested next step names the labels of nodes that the pods need: the labels of a namespaced model and of weights
    that were trained on it. Other labels would have no effect.
    """
    world = weighed()
    labels = "models.ome.io/team.basemodel.tiny", "models.ome.io/finetunedweight.poet"
    made = next(live.manifest for live in world.children.values() if live.key[0] == "StatefulSet")
    spec = made["spec"]["template"]["spec"]
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert tuple(wish["key"] for wish in term["matchExpressions"]) == labels
    found = asked(world)
    steps = {finding.reason: finding.next for finding in found.findings}
    assert f"kubectl get nodes -l {labels[0]}=Ready,{labels[1]}=Ready" in steps["WaitingForNodes"]
    pods = tuple(pod._replace(ready=False, reason="Unschedulable", message=FULL) for pod in world.observed().pods)
    seen = find_trouble(tree(body(world), replace(world.observed(), pods=pods)), body(world)["status"]["conditions"], ())
    assert seen.pods[0].next.endswith(f"kubectl get nodes -L {labels[0]} -L {labels[1]}")


def test_events_before_readiness_are_omitted() -> None:
    world = grown(World(*parts.kimi(), seed=1))
    (ready,) = [told for told in world.service.status["conditions"] if told["type"] == "Ready"]
    at = datetime.fromisoformat(ready["lastTransitionTime"])
    events = tuple(
        SeenEvent(at + timedelta(minutes=late), "Warning", "FailedScheduling", "Pod a", f"{late}", 1) for late in (-31, 2)
    )
    assert [event.message for event in asked(world, events).events] == ["2"]
    assert len(asked(world, events, ready=False, reason="NotReady").events) == 1
    broken = body(world)
    broken["status"]["conditions"] = [{**told, "status": "False"} for told in broken["status"]["conditions"]]
    seen = find_trouble(tree(broken, world.observed()), broken["status"]["conditions"], events)
    assert [event.message for event in seen.events] == ["2", "-31"]


def test_events_before_replacement_of_a_group_are_omitted() -> None:
    """Events of a group from before the replacement of the group are not reported any more. The service stayed Ready during
    the replacement, so the conditions of the service did not change.
    """
    world = grown(World(*parts.kimi(), seed=1))
    at = datetime.fromisoformat(world.condition("Ready")["lastTransitionTime"])
    events = tuple(
        SeenEvent(at + timedelta(minutes=late), "Warning", "FailedScheduling", "Pod a", f"{late}", 1) for late in (2, 9)
    )
    groups = [{"name": "a", "readySince": (at + timedelta(minutes=5)).isoformat()}, {"name": "b"}, {"readySince": "soon"}]
    one = body(world)
    seen = find_trouble(tree(one, world.observed()), one["status"]["conditions"], events, groups)
    assert [event.message for event in seen.events] == ["9"]


def test_earlier_events_explain_missing_groups_of_a_ready_service() -> None:
    world = grown(World(*parts.kimi(), seed=1))
    at = datetime.fromisoformat(world.condition("Ready")["lastTransitionTime"])
    events = (SeenEvent(at - timedelta(minutes=31), "Warning", "FailedScheduling", "Pod a", "no node", 1),)
    short = body(world)
    lacks = {"Scaled": {"status": "False", "reason": "WaitingForRoom"}, "EngineReady": {"status": "False", "reason": "x"}}
    short["status"]["conditions"] = [each | lacks.get(each["type"], {}) for each in short["status"]["conditions"]]
    seen = find_trouble(tree(short, world.observed()), short["status"]["conditions"], events)
    assert (seen.ready, seen.missing, len(seen.events)) == (True, "WaitingForRoom", 1)
    assert [each.condition for each in seen.findings] == ["EngineReady"], "Scaled repeats it"
    head, *_ = draw.draw_trouble(seen, at)
    assert str(head).endswith("is Ready, and groups are missing: WaitingForRoom")


def test_pin_is_reported_for_a_healthy_service() -> None:
    world = grown(World(*parts.kimi(), seed=1))
    pinned = body(world)
    name = pinned["status"]["revision"]
    pinned["spec"]["rollout"] = {"revision": name}
    seen = find_trouble(tree(pinned, world.observed()), pinned["status"]["conditions"], ())
    undo = "ome undo kimi-k2-instruct -n kimi-k2-instruct --off ends that"
    line = f"pinned to {name} by spec.rollout.revision: edits wait ({undo})"
    assert seen.ready and line in text(seen)
    assert "pinned" not in text(asked(world))


@pytest.mark.parametrize(
    ("component", "reason", "said"),
    [
        ("decoder", "Starting", "wait until the weights are loaded; to follow the log: ome logs"),
        ("router", "Starting", "ome logs kimi-k2-instruct -n kimi-k2-instruct --role router -f"),
        ("decoder", "ContainerCreating", "no container runs yet"),
        ("decoder", "FailedMount", "correct what the message names"),
    ],
)
def test_running_engines_are_reported_as_loading_weights(component: str, reason: str, said: str) -> None:
    world = grown(World(*parts.kimi(), seed=1))
    observed = world.observed()
    pods = tuple(pod._replace(ready=False, reason=reason) if pod.component == component else pod for pod in observed.pods)
    seen = find_trouble(tree(body(world), replace(observed, pods=pods)), body(world)["status"]["conditions"], ())
    assert [stuck.next.startswith(said) for stuck in seen.pods] == [True]


@pytest.mark.parametrize(
    "message",
    [
        'persistentvolumeclaim "weights" not found',
        "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
    ],
)
def test_missing_claim_does_not_suggest_freeing_gpus(message: str) -> None:
    """For a missing volume claim, the next step is to look at the claims of the namespace. Reported: the suggested next step
    was to free GPUs.
    """
    found = asked(grown(World(*parts.kimi(), seed=1)), ready=False, reason="Unschedulable", message=message)
    (one,) = found.pods
    assert "kubectl get pvc -n" in one.next and "GPUs" not in one.next


FORBIDDEN = 'pods "svc-engine-0" is forbidden: violates PodSecurity "restricted:latest": hostPath volumes'


@pytest.mark.parametrize("component", ["engine", "decoder", "router"])
def test_refused_pods_do_not_suggest_waiting(component: str) -> None:
    """If the API server refuses pods, the suggested next step is not to wait for them. Reported: the suggested next step
    was to wait until the StatefulSet creates the pod, and to read the events, below the API server's own message.
    """
    world = grown(World(*parts.kimi(), seed=1))
    observed, one = world.observed(), body(world)
    type_ = {"engine": "EngineReady", "decoder": "DecoderReady", "router": "RouterReady"}[component]
    told = [each for each in one["status"]["conditions"] if each["type"] != type_]
    message = f"x 0/4: 4 pods cannot be created: {FORBIDDEN}"
    one["status"]["conditions"] = [*told, {"type": type_, "status": "False", "reason": "PodsRefused", "message": message}]
    seen = tree(one, replace(observed, pods=tuple(pod for pod in observed.pods if pod.component != component)))
    found = find_trouble(seen, one["status"]["conditions"], ())
    (stuck,) = found.pods
    assert (stuck.reason, stuck.message) == ("PodsRefused", FORBIDDEN)
    assert stuck.next.startswith("correct what the API server names")
    assert text(found).count(FORBIDDEN) == 1 and "wait until" not in text(found)
    (drawn,) = (role for part in seen.slices for role in part.roles if role.component == component)
    assert drawn.why == "" and {rank.reason for group in drawn.groups for rank in group.ranks} == {"PodsRefused"}


@pytest.mark.parametrize(
    ("message", "step"),
    [
        (
            "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
            "free GPUs (who holds them: ome nodes), label nodes, or ",
        ),
        (
            "0/2 nodes are available: 2 Insufficient cpu, 2 Insufficient memory.",
            "free cpu and memory on nodes, label nodes, ",
        ),
        (
            "0/2 nodes are available: 2 node(s) had untolerated taint {a: b}.",
            "add a toleration of a to spec.decoder.tolerations (if the pods may use such nodes), label nodes, or check ",
        ),
    ],
)
def test_suggested_step_frees_the_missing_resource(message: str, step: str) -> None:
    found = asked(grown(World(*parts.kimi(), seed=1)), ready=False, reason="Unschedulable", message=message)
    assert found.pods[0].next.startswith(step)


def test_a_router_needs_neither_gpus_nor_the_label_of_a_model() -> None:
    world = grown(World(*parts.kimi(), seed=1))
    message = "0/2 nodes are available: 2 Insufficient memory."
    pods = tuple(
        pod._replace(ready=False, reason="Unschedulable", message=message) if pod.component == "router" else pod
        for pod in world.observed().pods
    )
    (stuck,) = find_trouble(tree(body(world), replace(world.observed(), pods=pods)), (), ()).pods
    assert stuck.role == "router" and "GPU" not in stuck.next and "label" not in stuck.next


def test_suggested_labels_belong_to_the_revision_of_the_pods() -> None:
    """The labels in a next step are those that the pods of their own revision need. Reported: during a rollout to another
    model, pods of the former revision were told to look for the label of the new model.
    """
    world = grown(World(parts.service(engine={}, router={}), parts.deps(parts.model(), parts.simple()), seed=1))
    before = world.service.status["revision"]
    other = parts.deps(parts.model(name="other"), parts.simple())
    world.edit(parts.service(model={"name": "other"}, engine={}, router={}, rollout={"blueGreen": {}}), other)
    world.run(6)
    pods = tuple(pod._replace(ready=False, reason="Unschedulable", message=FULL) for pod in world.observed().pods)
    seen = tree(body(world), replace(world.observed(), pods=pods))
    assert {part.labels for part in seen.slices} == {
        ("models.ome.io/clusterbasemodel.tiny",),
        ("models.ome.io/clusterbasemodel.other",),
    }
    found = find_trouble(seen, (), ()).pods
    steps = {stuck.pods[0].partition(f"-{before}")[1] != "": stuck.next for stuck in found if stuck.role == "engine"}
    assert steps[True].endswith("clusterbasemodel.tiny") and steps[False].endswith("clusterbasemodel.other")


def test_labels_set_by_agents_are_not_suggested() -> None:
    world = grown(World(*parts.kimi(), seed=1))
    seen = asked(world, ready=False, reason="Unschedulable", message=FULL).pods[0]
    assert "label nodes, or " in seen.next and "agents" not in seen.next
    observed = world.observed()
    pods = tuple(pod._replace(ready=False, reason="Unschedulable", message=FULL) for pod in observed.pods)
    shown = tree(body(world), replace(observed, pods=pods))
    shown = replace(shown, slices=tuple(replace(part, fetched=True) for part in shown.slices))
    assert "wait for the model agents, which label nodes, or " in find_trouble(shown, (), ()).pods[0].next
