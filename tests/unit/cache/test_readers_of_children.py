"""Tests that labels alone prove nothing: every place of the program that finds objects of a service by labels is known.
Each place either checks the owner, or has a reason why the check is not needed. Objects of others that carry the labels
of a service change no answer.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import ome_operator
from ome_operator.kube.listing import list_all

ROOT = Path(ome_operator.__file__).parent
NAMES = frozenset({"children_of", "pods_of", "label_selector"})
"""Methods of the cache that find objects by the label of a service, and the argument of lists that selects by labels."""
STORES = frozenset({"children", "pods"})
"""Attributes of the cache, whose method `group` finds objects by the label of a service."""
LISTING = frozenset({"kube/client.py", "kube/listing.py"})
"""The client, which passes selectors of its callers on."""

BY_OWNER = "goes by the UID of the owner: "
BY_WORKLOAD = "goes by the workload that created a pod: "
OTHERS = "reads no objects of services: "
READERS = {
    "adopt/cluster.py _stopped": OTHERS + "the Deployment of OME's controller",
    "adopt/handover.py _drained": OTHERS + "the pods of OME's routers, before the operator has any",
    "adopt/webhooks.py _answers": OTHERS + "the EndpointSlices of OME's webhooks",
    "cache/cluster_cache.py children_of": "the query itself",
    "cache/cluster_cache.py pods_of": BY_WORKLOAD + "made_by_workload",
    "cache/cluster_cache.py job_of": BY_OWNER + "the UID of the BenchmarkJob",
    "cache/event_handler.py _urgency_of_pod": "only decides how soon the service is reconciled",
    "cache/event_handler.py _urgency_of_template": "only decides how soon the service is reconciled",
    "cache/event_handler.py _starting_changed": "only enqueues records of nodes",
    "cache/owned.py owned_children": BY_OWNER + "controlled_or_adoptable",
    "cache/owned.py own_routers": BY_OWNER + "the Deployments that the service controls",
    "cache/owned.py revision_of_pods": "the owner comes first; pods of a deleted service still hold their nodes",
    "cli/freeze.py _all_say": OTHERS + "InferenceServices by the class that their label names",
    "cli/freeze.py _left": OTHERS + "InferenceServices by the class that their label names",
    "cli/freeze.py work": OTHERS + "InferenceServices by the class that their label names",
    "cli/live/board.py _agents": OTHERS + "pods of model agents",
    "cli/live/board.py _read": BY_OWNER + "tree, stored and slices",
    "cli/live/board.py board": BY_OWNER + "tree, stored and slices",
    "cli/live/diagnosis.py read_trouble": BY_OWNER + "tree and stored",
    "cli/live/fits.py services_that_fit": BY_OWNER + "outcome, as the operator does",
    "cli/live/preflight.py _looked": OTHERS + "the pods of a check, by a random label",
    "cli/live/trials.py _outcome": BY_OWNER + "outcome, as the operator does",
    "cli/live/preflight.py _removed": OTHERS + "the pods of a check, by a random label",
    "cli/live/preflight.py _work": OTHERS + "the pods of a check, by a random label",
    "cli/live/trials.py of_service": BY_OWNER + "_outcome, which takes only revisions and RoleScales of the service",
    "cli/live/preview.py _planned": BY_OWNER + "sync, as the operator does",
    "cli/live/preview.py _running": BY_OWNER + "slices",
    "cli/live/preview.py preview": BY_OWNER + "outcome, as the operator does",
    "cli/live/recording.py live": "a recording contains everything that sync would observe",
    "cli/live/simulated.py read_simulated_nodes": OTHERS + "simulated nodes",
    "cli/live/trees.py services": BY_OWNER + "tree and slices",
    "cli/logs.py _nothing": BY_WORKLOAD + "made_by_workload",
    "cli/logs.py _sources": BY_WORKLOAD + "made_by_workload",
    "cli/move.py _node": BY_WORKLOAD + "made_by_workload",
    "cli/rollout.py _find": BY_OWNER + "stored",
    "cli/scale.py _found": BY_OWNER + "the UID of the service",
    "controllers/bad_nodes.py _concerned": BY_WORKLOAD + "pods_of",
    "controllers/bad_nodes.py evaluate": BY_WORKLOAD + "pods_of",
    "controllers/benchmarkjob.py reconcile_resource": BY_OWNER
    + "the label with which Jobs mark pods has the UID of the Job",
    "controllers/conflicting_operators.py _listed": OTHERS + "Leases of operators",
    "controllers/former_exposure.py _remove": BY_OWNER + "the UID of the service that controls the object",
    "controllers/inferenceservice/executor.py _own": BY_OWNER + "the UID of the service",
    "controllers/inferenceservice/foreign_objects.py _refreshed": OTHERS + "objects of other clients",
    "controllers/inferenceservice/guards.py as_seen": BY_WORKLOAD + "made_by_workload",
    "controllers/inferenceservice/guards.py guard_applies": BY_WORKLOAD + "made_by_workload",
    "controllers/inferenceservice/first_pods.py _count": "only decides whether the service is reconciled",
    "controllers/inferenceservice/reconciler.py _inspect_missing_pods": BY_OWNER + "by the names of workloads in the plan",
    "controllers/inferenceservice/reconciler.py reconcile": BY_WORKLOAD + "pods_of",
    "controllers/inferenceservice/reconciler.py _observed": "sync needs objects of others, too: their names are taken",
    "controllers/inferenceservice/reconciler.py _unreachable": BY_OWNER + "the UID of the service",
    "controllers/inferenceservice/still_serves.py still_serves": BY_OWNER + "slices and stored",
    "controllers/manager.py listed": OTHERS + "UIDs for the comparison with the cache, which has all objects with the label",
    "controllers/metrics_collector.py _service": BY_WORKLOAD + "pods_of",
    "controllers/placement/autoscalers.py read_scale_ups": BY_WORKLOAD + "pods_of",
    "controllers/placement/free_capacity.py nodes_without": BY_WORKLOAD + "pods_of",
    "controllers/placement/gangs.py _held_by": BY_WORKLOAD + "pods_of",
    "controllers/prefetching.py starting_directories": BY_WORKLOAD + "pods_of",
    "controllers/start.py scaled_objects": OTHERS + "only asks whether the operator may list the kind",
    "controllers/traffic.py _sample": BY_WORKLOAD + "pods_of",
}
"""Module and function -> how it proves that the objects belong to a service, or why it need not."""


def readers() -> Iterator[str]:
    """Yield module and function of each place that finds objects by labels, once for each function."""
    for path in sorted(ROOT.rglob("*.py")):
        module = path.relative_to(ROOT).as_posix()
        if module in LISTING or module.startswith(("core/", "api/")):
            continue  # the pure core gets what it reads; the tests below compare its results
        for found in ast.walk(ast.parse(path.read_text())):
            if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef) and any(map(_by_label, _own_nodes(found))):
                yield f"{module} {found.name}"


def _own_nodes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Yield the syntax nodes of a function, without the nodes of functions that are defined in it."""
    todo: list[ast.AST] = [*function.body]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            todo.extend(ast.iter_child_nodes(node))


def _by_label(node: ast.AST) -> bool:
    """Return whether a call finds objects by labels."""
    if not isinstance(node, ast.Call):
        return False
    if any(word.arg in NAMES and not _empty(word.value) for word in node.keywords):
        return True
    if isinstance(node.func, ast.Name) and node.func.id == list_all.__name__:
        return len(node.args) > 3 or any(word.arg == "selector" for word in node.keywords)
    if not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr == "group":
        return bool(STORES & {each.attr for each in ast.walk(node.func.value) if isinstance(each, ast.Attribute)}) or (
            isinstance(node.func.value, ast.Name) and node.func.value.id == "store"
        )
    return node.func.attr in NAMES


def _empty(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value == ""


def test_every_reader_of_children_checks_the_owner_or_is_listed() -> None:
    found = Counter(readers())
    assert found.keys() == READERS.keys(), "a reader by labels alone needs cache/owned.py, or a reason in READERS"
    assert all(READERS.values())


def test_reader_by_label_alone_is_detected() -> None:
    lines = (
        "cluster.children_of('ns', 'svc')",
        "self._cluster.pods_of(ref.namespace, ref.name)",
        "client.list_objects('Pod', 'ns', label_selector=selector)",
        "self.children['StatefulSet'].group(('ns', 'svc'))",
        "cluster.pods.group(key)",
        "list_all(client, KINDS, namespace, selector(name))",
        "list_all(client, KINDS, selector=OURS)",
    )
    assert all(any(map(_by_label, ast.walk(ast.parse(line)))) for line in lines)
    others = (
        "cluster.find(ref)",
        "list_all(client, KINDS, namespace)",
        "client.list_objects('Node')",
        "match.group()",
        "self.resources[kind].group(ref)",
    )
    assert not any(any(map(_by_label, ast.walk(ast.parse(line)))) for line in others)
