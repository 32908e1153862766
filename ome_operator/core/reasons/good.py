"""Reasons of conditions in a good state."""

from ome_operator.core.reasons import conditions as on
from ome_operator.core.reasons.record import Kstatus, ReasonRecord, State


def _good(word: str, of: tuple[str, ...], meaning: str) -> ReasonRecord:
    """Return the record of a reason that requires no action."""
    return ReasonRecord(word, of=of, kstatus=Kstatus.CURRENT, state=State.READY, meaning=meaning)


class GoodReasons:
    """States that require no action."""

    READY = _good(
        "Ready",
        (*on.COMPONENTS, on.MODEL_READY, on.READY),
        "every pod of every desired group is ready; under `ModelReady`: enough nodes hold the model",
    )
    FOUND = _good("Found", (on.RUNTIME_READY, on.READY), "the runtime exists, or nodes with the accelerator exist")
    CLAIM = _good(
        "Claim",
        (on.MODEL_READY, on.READY),
        "the weights are in a PersistentVolumeClaim, so no node has to hold them",
    )
    COMPLETE = _good(
        "Complete",
        (on.ROLLED_OUT, on.SCALED),
        "the desired revision is complete, and no other revision exists; under `Scaled`: every desired group is ready, "
        "or, while two revisions exist, as many groups as the rollout requires",
    )
    COMPLETED = _good("Completed", (on.COMPLETE,), "the benchmark has ended, and no request failed")
    SERVING = _good(
        "Serving", (on.READY,), "requests to the URL are answered, because a group of each role and a router are ready"
    )
    RECOVERED = _good("Recovered", (on.RECOVERED,), "every group that failed is ready again")
    IN_SYNC = _good("InSync", tuple(on.DRIFTED.values()), "the runtime or model equals the version that the service uses")
    ON_NODES = _good("OnNodes", (on.READY,), "nodes hold the model; the message states how many")
    USABLE = _good("Usable", (on.READY,), "services can use the runtime")
    VIRTUAL_DEPLOYMENT = _good(
        "VirtualDeployment", (on.READY,), ("this operator does not serve the service, so the service has no pods")
    )
