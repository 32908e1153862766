"""States on which nodes no model agent reports the weights, and since when."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.core.catalog.node_models import duration
from ome_operator.quantity import moment

NEVER, DENIED = "no agent has reported yet", "they may not be read"
"""Values of `UnknownWeights.why` if it is not known since when the weights on a node are unknown."""
Body = Mapping[str, Any]


class UnknownWeights(NamedTuple):
    """Why the weights on a node are unknown."""

    why: str
    """`NEVER`, `DENIED`, or a text that states what has stopped reporting (the node or its agent), and for how long."""
    labelled_models: tuple[str, ...] = ()
    """The models for which a label of the node has the value `Ready`, each as the key of the label without its prefix.
    Empty if the node has a NodeModels record. If it has none, somebody has set the label by hand."""

    @property
    def text(self) -> str:
        """The models in the node's labels or, if there are none, why the weights are unknown, in a few words."""
        named = ", ".join(self.labelled_models)
        return f"{named} by label" if named else f"unknown: {self.why}"


def unknown_weights(
    nodes: Iterable[Body], records: Iterable[Body], agents: Iterable[Body], now: datetime, denied: bool = False
) -> dict[str, UnknownWeights]:
    """Return the nodes whose weights are unknown, by name.

    records   The NodeModels of the agents.
    agents    The pods of the agents; empty if the user may not read them, or if agents do not run as pods of the chart. If
              there are none, the weights on a node with a record count as known while the node is Ready.
    denied    Whether the user may not read NodeModels.
    """
    reported = {body["metadata"]["name"] for body in records}
    # Of several pods on a node, a pod that is Ready takes precedence.
    ordered = sorted(agents, key=lambda body: _not_ready(body) is None)
    running = {(body.get("spec") or {}).get("nodeName"): body for body in ordered}
    found = {}
    for body in nodes:
        name = body["metadata"]["name"]
        why = DENIED if denied else NEVER if name not in reported else _silent(body, running, now)
        if why:
            found[name] = UnknownWeights(why, () if name in reported else tuple(_labelled(body)))
    return found


def _silent(node: Body, running: Mapping[Any, Body], now: datetime) -> str:
    """Return a text that states whether the node or its agent has stopped reporting, and for how long; "" if both report.
    The node has a record.
    """
    if (since := _not_ready(node)) is not None:
        return f"the node is silent{_for(since, now)}"
    agent = running.get(node["metadata"]["name"])
    if agent is None:
        return "no agent runs there any more" if running else ""
    since = _not_ready(agent)
    return f"its agent is silent{_for(since, now)}" if since is not None else ""


def _not_ready(body: Body) -> str | None:
    """Return the time since which a node or a pod has not been Ready, in RFC 3339. Return "" if the time is unknown, and
    None if the node or the pod is Ready.
    """
    conditions = (body.get("status") or {}).get("conditions") or ()
    ready: Body = next((item for item in conditions if item.get("type") == "Ready"), {})
    return None if ready.get("status") == "True" else str(ready.get("lastTransitionTime") or "")


def _for(since: str, now: datetime) -> str:
    when = moment(since, now) if since else None
    return f" for {duration((now - when).total_seconds())}" if when is not None else ""


def _labelled(node: Body) -> Iterator[str]:
    for key, value in sorted((node["metadata"].get("labels") or {}).items()):
        if key.startswith(keys.MODEL_LABEL_PREFIX) and value == keys.MODEL_READY:
            yield key.removeprefix(keys.MODEL_LABEL_PREFIX).removeprefix("clusterbasemodel.")
