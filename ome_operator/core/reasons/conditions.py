"""Names of the conditions of all kinds, and the type of a reason with its message."""

from typing import NamedTuple

from ome_operator import keys

MODEL_READY, RUNTIME_READY = "ModelReady", "RuntimeReady"
ENGINE_READY, DECODER_READY, ROUTER_READY = "EngineReady", "DecoderReady", "RouterReady"
ROLLED_OUT, READY, ADVICE = "RolledOut", "Ready", "Advice"
SCALED = "Scaled"
"""Condition that states whether every desired group is ready; Ready only states whether the service answers requests."""
STALLED, RECONCILING = "Stalled", "Reconciling"
"""Conditions that summarize the other conditions for kstatus. At most one of them exists, and it is True."""
DRIFTED = {"runtime": "RuntimeDrifted", "model": "ModelDrifted"}
"""Maps "runtime" and "model" to the condition which reports that the current object differs from the version that the
service uses. Only services with `autoSync: false` have the condition."""
ANOTHER, RECOVERED, FROZEN = "AnotherOperator", "Recovered", "Frozen"
MOVED = "Moved"
"""Condition that exists only while groups leave their nodes (docs/moves.md)."""
NODES_AGREE = "NodesAgree"
"""Condition of models that exists only while nodes report different revisions or facts, or while one node waits for the
confirmation of another."""
PREFLIGHT = "Preflight"
"""Condition that exists only while the preflight check of an engine has findings."""
ROUTER_INTACT = "RouterIntact"
"""Condition that exists only if a foreign worker was recently registered in a router."""
TRANSFERS_WORK = "TransfersWork"
"""Condition that exists only while transfers between a prefill and a decode engine fail."""
FOLLOWS_DEMAND = "FollowsDemand"
"""Condition that exists only for services that are scaled with their demand."""
COMPLETE = "Complete"
"""The condition of BenchmarkJobs."""
CONDITION = {keys.ENGINE: ENGINE_READY, keys.DECODER: DECODER_READY, keys.ROUTER: ROUTER_READY}
"""Maps each component to the condition that reports the state of its pods."""
COMPONENTS = tuple(CONDITION.values())
"""The conditions that report the state of components."""
ORDER = (
    STALLED, RECONCILING,
    FROZEN, MODEL_READY, RUNTIME_READY, ENGINE_READY, DECODER_READY, ROUTER_READY, PREFLIGHT, RECOVERED, MOVED, SCALED,
    ROLLED_OUT, READY, *DRIFTED.values(), ROUTER_INTACT, TRANSFERS_WORK, FOLLOWS_DEMAND,
    ADVICE,
)  # fmt: skip
"""Conditions of an InferenceService in the order in which they are displayed."""


class ReasonedMessage(NamedTuple):
    """A reason together with its message."""

    reason: str
    """A reason, or a word from the kubelet or the API server."""
    sentence: str


NOTHING = ReasonedMessage("", "")
"""The absence of a reason, because nothing is wrong."""
