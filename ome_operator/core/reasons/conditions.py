"""Names of the conditions of all kinds, and how a reason travels with its sentence."""

from typing import NamedTuple

from ome_operator import keys

MODEL_READY, RUNTIME_READY = "ModelReady", "RuntimeReady"
ENGINE_READY, DECODER_READY, ROUTER_READY = "EngineReady", "DecoderReady", "RouterReady"
ROLLED_OUT, READY, ADVICE = "RolledOut", "Ready", "Advice"
DRIFTED = {"runtime": "RuntimeDrifted", "model": "ModelDrifted"}
"""Only of services that do not follow edits: True where the runtime or model differs from what the service keeps."""
ANOTHER, RECOVERED, FROZEN = "AnotherOperator", "Recovered", "Frozen"
PREFLIGHT = "Preflight"
"""Present only while the check before an engine has found something."""
ROUTER_INTACT = "RouterIntact"
"""Present only while a foreign worker was in a router's list recently."""
COMPLETE = "Complete"
"""The condition of BenchmarkJobs."""
CONDITION = {keys.ENGINE: ENGINE_READY, keys.DECODER: DECODER_READY, keys.ROUTER: ROUTER_READY}
"""Component -> the condition that reports its pods."""
COMPONENTS = tuple(CONDITION.values())
"""The conditions of components."""
ORDER = (
    FROZEN, MODEL_READY, RUNTIME_READY, ENGINE_READY, DECODER_READY, ROUTER_READY, PREFLIGHT, RECOVERED, ROLLED_OUT, READY,
    *DRIFTED.values(), ROUTER_INTACT, ADVICE,
)  # fmt: skip
"""Conditions of an InferenceService in the order in which a person reads them."""


class Why(NamedTuple):
    """A reason with the sentence that goes with it."""

    reason: str
    """A reason, or a word of the kubelet or the API server."""
    sentence: str


NOTHING = Why("", "")
"""No reason: everything is as it should be."""
