"""Ask the planner (`ome plan`) how fast the groups of a service are, until their speed has been measured (docs/demand.md).

A prediction costs up to half a second of CPU time, so it runs in a thread, and its result is kept for each revision and
class of request lengths. The planner is imported when the first prediction is necessary.
"""

import asyncio
import logging
import math
from collections.abc import Collection, Mapping
from typing import Any

from ome_operator.api import Model
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.owned import revision as stored_revision
from ome_operator.core.demand.facts import COMPONENT_OF, GROUPS, NO_PLAN, PlannedSpeeds
from ome_operator.core.demand.task import DemandTask
from ome_operator.core.observed.objects import Ref
from ome_operator.core.render.statefulsets import roles_by_component
from ome_operator.core.resolve.finetuned import BASE
from ome_operator.lint.model import matching_classes

logger = logging.getLogger(__name__)

KEPT = 2
"""Number of predictions that are kept for each service: the lengths of its requests may alternate between two classes."""
FAILED = PlannedSpeeds(
    missing="`ome plan` failed because of a bug of the operator: the log of the operator contains the error"
)
CLASSES = 2.0
"""Number of classes of request lengths between a length and its double. All lengths of a class use the same prediction."""


class SpeedPlanner:
    """Predicts the speed of the groups of services."""

    def __init__(self, cluster: ClusterCache) -> None:
        self._cluster = cluster
        self._kept = dict[Ref, dict[tuple[Any, ...], tuple[Model | None, PlannedSpeeds]]]()
        """Maps a service to its last predictions, ordered by their last use; the prediction that was used last is at the
        end."""
        self._failed = dict[Ref, str]()
        """Maps a service to the last error of a prediction. Each error is logged once."""
        self._on_nodes = dict[frozenset[tuple[str, str]], bool]()
        """Maps the node selector of an accelerator class to whether a node has these labels, as found since
        `begin_round`."""

    def begin_round(self, services: Collection[Ref]) -> None:
        """Discard the predictions for all services except `services`, and the results of the search for nodes of
        accelerator classes. The result of a search is used for all services of a round, because a search takes
        milliseconds if there are thousands of nodes.
        """
        self._on_nodes.clear()
        self._kept = {ref: kept for ref, kept in self._kept.items() if ref in services}
        self._failed = {ref: error for ref, error in self._failed.items() if ref in services}

    async def predict(self, ref: Ref, task: DemandTask, lengths: tuple[float, float] | None) -> PlannedSpeeds:
        """Return the predicted speeds of the groups of a service's desired revision, or the reason why there are none.
        `lengths` are the mean numbers of prompt and output tokens of its requests; None if they are unknown, so that nothing
        is predicted. Never raises.
        """
        if lengths is None or min(lengths) <= 0 or not task.revision:
            return NO_PLAN
        try:
            return await self._of(ref, task.revision, (_rounded(lengths[0]), _rounded(lengths[1])))
        except Exception as error:  # a bug of the planner, or a revision that somebody else wrote, affects only this service
            if self._failed.get(ref) != repr(error):
                logger.exception("cannot predict the speed of the groups of %s/%s", ref.namespace, ref.name)
            self._failed[ref] = repr(error)
            return PlannedSpeeds(missing=f"`ome plan` failed with {type(error).__name__} because of a bug of the operator")

    async def _of(self, ref: Ref, revision: str, lengths: tuple[float, float]) -> PlannedSpeeds:
        data = stored_revision(self._cluster, ref, revision)
        inputs = data.get("inputs") or {}
        model, hardware = self._model(inputs), self._hardware(data, inputs)
        key, kept = (revision, lengths, hardware), self._kept.setdefault(ref, {})
        before = kept.pop(key, None)
        if before is not None and before[0] is model:
            kept[key] = before
            return before[1]
        while len(kept) >= KEPT:
            del kept[next(iter(kept))]
        kept[key] = model, FAILED  # the same prediction would fail again
        found = await asyncio.to_thread(_predicted, data, model, hardware, lengths)
        kept[key] = model, found
        return found

    def _model(self, inputs: Mapping[str, Any]) -> Model | None:
        of = inputs.get(BASE) or inputs.get("model") or {}
        found = self._cluster.deps().models.get(Ref(of.get("kind", ""), of.get("namespace", ""), of.get("name", "")))
        return found if isinstance(found, Model) else None

    def _hardware(self, data: Mapping[str, Any], inputs: Mapping[str, Any]) -> frozenset[str]:
        """Return the GPU models on which the revision may run: the GPUs of the accelerator classes that it names, or
        otherwise of the classes that match the GPUs its pods request. If there are several classes, only classes with a
        node in the cluster are used; if none has a node, all of them are used.
        """
        deps = self._cluster.deps()
        named = frozenset(part["class"] for part in (inputs.get("accelerator") or {}).values() if "class" in part)
        boxes = [
            box
            for role in roles_by_component(data).values()
            for box in role.leader["spec"]["template"]["spec"]["containers"]
        ]
        asked = frozenset(name for box in boxes for name in ((box.get("resources") or {}).get("limits") or {}))
        found = matching_classes(deps.accelerators, named, asked)
        if len(found) > 1:
            seen = {name for name, one in found.items() if self._has_node(one.spec.discovery.node_selector or {})}
            found = {name: one for name, one in found.items() if name in seen} or found
        return frozenset((one.spec.model or name).lower() for name, one in found.items())

    def _has_node(self, selector: Mapping[str, str]) -> bool:
        key = frozenset(selector.items())
        if key not in self._on_nodes:
            self._on_nodes[key] = any(key <= node.labels.items() for node in self._cluster.deps().nodes.values())
        return self._on_nodes[key]


def _predicted(
    data: Mapping[str, Any], model: Model | None, hardware: frozenset[str], lengths: tuple[float, float]
) -> PlannedSpeeds:
    from ome_operator.sizing.speeds import DescribedGroup, predict_speeds

    roles = roles_by_component(data)
    pods = {role: roles[COMPONENT_OF[role]].leader["spec"]["template"] for role in GROUPS}
    groups = {
        role: DescribedGroup(pod["spec"]["containers"][0], pod["metadata"].get("annotations") or {})
        for role, pod in pods.items()
    }
    return predict_speeds(groups, model, hardware, *lengths)


def _rounded(tokens: float) -> float:
    """Return the greatest length in the class of request lengths that contains `tokens`."""
    return float(2.0 ** (math.ceil(CLASSES * math.log2(tokens)) / CLASSES))
