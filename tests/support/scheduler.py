"""A simple scheduler for the simulated cluster. It implements the scheduler's filters a second time, without
optimization.
"""

from collections.abc import Mapping
from typing import Any

from ome_operator import keys
from ome_operator.core.observed.objects import Node, Taint
from ome_operator.core.placement.demand import Demand, Expression, Term
from tests.support.live import LivePod
from tests.support.simulator import World

CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
GPU = "nvidia.com/gpu"


def may(demand: Demand, node: Node) -> bool:
    """Return whether a pod may run on a node, regardless of capacity."""
    where = {**node.labels, "metadata.name": node.name}

    def met(expression: Expression) -> bool:
        value, values = where.get(expression.key), expression.values
        if expression.operator == "In":
            return value in values
        if expression.operator == "NotIn":
            return value not in values
        if expression.operator == "Exists":
            return value is not None
        if expression.operator == "DoesNotExist":
            return value is None
        if not (value or "").isdecimal() or not values[0].isdecimal():
            return False
        return int(value or "") > int(values[0]) if expression.operator == "Gt" else int(value or "") < int(values[0])

    def tolerated(taint: Taint) -> bool:
        return any(
            each.effect in ("", taint.effect)
            and ((each.key == "" and each.operator == "Exists") or each.key == taint.key)
            and (each.operator == "Exists" or each.value == taint.value)
            for each in demand.tolerations or ()
        )

    if not all(map(met, demand.selector)):
        return False
    if demand.terms and not any((t.labels or t.name) and all(map(met, t.labels + t.name)) for t in demand.terms):
        return False
    taints = [*node.taints, *([] if node.ready else [CORDON])]
    return node.alive and all(map(tolerated, taints))


class Scheduler:
    """Binds pods of a world to its nodes; a pod becomes ready only on a node. Each engine pod takes `gpus` GPUs."""

    def __init__(self, world: World, gpus: int = 1) -> None:
        self.world, self.gpus = world, gpus
        self._selectors: dict[str, Demand] = {}
        """The selector of each pod by its UID. A pod keeps it when its StatefulSet is deleted."""
        world.healthy, world.scheduled = self.is_placed, True

    def is_placed(self, pod: LivePod) -> bool:
        """Bind an engine pod that is on no node if a node can hold it, and return whether the pod may become ready. Routers
        need no node. A leader may become ready only when all ranks of its group are on nodes.
        """
        if pod.labels[keys.COMPONENT] == keys.ROUTER:
            return True
        if not pod.node:
            pod.node = next((name for name in self.world.deps.nodes if self._takes(name, pod)), "")
        return bool(pod.node) and (pod.rank > 0 or self._met(pod))

    def _met(self, leader: LivePod) -> bool:
        """Return whether all ranks of a leader's group are on nodes."""
        workers = self.world.children.get(("StatefulSet", f"{leader.workload}-w"))
        ranks = [pod for pod in self.world.pods.values() if workers and pod.workload_uid == workers.uid and pod.node]
        return workers is None or len(ranks) >= workers.manifest["spec"]["replicas"]

    def free_gpus(self, name: str) -> int:
        """Return the number of GPUs of a node that no pod holds, including terminating pods."""
        used = sum(pod.node == name for pod in self.world.pods.values()) * self.gpus
        return dict(self.world.deps.nodes[name].room).get(GPU, 0) - used

    def _takes(self, name: str, pod: LivePod) -> bool:
        selector = self._selector(pod)
        return self.free_gpus(name) >= self.gpus and may(selector, self.world.deps.nodes[name])

    def _selector(self, pod: LivePod) -> Demand:
        found = self.world.children.get(("StatefulSet", pod.workload))
        if found is None or found.uid != pod.workload_uid:
            return self._selectors.get(pod.uid, Demand())
        spec = found.manifest["spec"]["template"]["spec"]
        asked: Mapping[str, str] = spec.get("nodeSelector", {})
        required = spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
        terms = tuple(
            Term(*(tuple(map(self._expression, term.get(part) or ())) for part in ("matchExpressions", "matchFields")))
            for term in required.get("nodeSelectorTerms", ())
        )
        selector = Demand(tuple(Expression(key, "In", (value,)) for key, value in asked.items()), terms)
        return self._selectors.setdefault(pod.uid, selector)

    @staticmethod
    def _expression(said: Mapping[str, Any]) -> Expression:
        return Expression(said["key"], said["operator"], tuple(said.get("values") or ()))
