"""What conditions are called, and every reason that they carry."""

from enum import StrEnum
from typing import NamedTuple

from ome_operator import keys

MODEL_READY, RUNTIME_READY = "ModelReady", "RuntimeReady"
ENGINE_READY, DECODER_READY, ROUTER_READY = "EngineReady", "DecoderReady", "RouterReady"
ROLLED_OUT, READY, ADVICE = "RolledOut", "Ready", "Advice"
DRIFTED = {"runtime": "RuntimeDrifted", "model": "ModelDrifted"}
"""Only of services that do not follow edits: True where what they keep is another by now."""
ANOTHER, RECOVERED, FROZEN = "AnotherOperator", "Recovered", "Frozen"
PREFLIGHT = "Preflight"
"""Only where the check before an engine found something."""
ROUTER_INTACT = "RouterIntact"
"""Only where somebody else's workers were in a router's list lately."""
COMPLETE = "Complete"
"""Of BenchmarkJobs."""
CONDITION = {keys.ENGINE: ENGINE_READY, keys.DECODER: DECODER_READY, keys.ROUTER: ROUTER_READY}
"""Component -> the condition that tells how it is."""
ORDER = (
    FROZEN, MODEL_READY, RUNTIME_READY, ENGINE_READY, DECODER_READY, ROUTER_READY, PREFLIGHT, RECOVERED, ROLLED_OUT, READY,
    *DRIFTED.values(), ROUTER_INTACT, ADVICE,
)  # fmt: skip
"""Conditions of an InferenceService in the order in which a person reads them."""


class Why(NamedTuple):
    """Why something is as it is."""

    reason: str
    """A Reason, or a word of the kubelet or the API server."""
    sentence: str


NOTHING = Why("", "")
"""There is no why: it is as it should be."""


class Reason(StrEnum):
    """Why a condition is as it is, in a word. docs/troubleshooting.md explains those that a person has to act on."""

    # What the object says
    INVALID_SPEC = "InvalidSpec"
    FORMER_SHAPE = "FormerShape"
    MODEL_NOT_NAMED = "ModelNotNamed"
    RUNTIME_NOT_NAMED = "RuntimeNotNamed"
    NO_ENGINE = "NoEngine"
    NO_CONTAINER = "NoContainer"
    INVALID_POD = "InvalidPod"
    SCALED_TO_ZERO = "ScaledToZero"

    # What it refers to
    BASE_MODEL_NOT_FOUND = "BaseModelNotFound"
    INVALID_MODEL = "InvalidModel"
    MODEL_DISABLED = "ModelDisabled"
    MODEL_UNKNOWN = "ModelUnknown"
    FINE_TUNED_WEIGHT_NOT_FOUND = "FineTunedWeightNotFound"
    INVALID_FINE_TUNED_WEIGHT = "InvalidFineTunedWeight"
    FINE_TUNED_WEIGHT_DISABLED = "FineTunedWeightDisabled"
    WRONG_BASE_MODEL = "WrongBaseModel"
    WEIGHTS_DO_NOT_MIX = "WeightsDoNotMix"
    CLAIM_IN_OTHER_NAMESPACE = "ClaimInOtherNamespace"
    RUNTIME_NOT_FOUND = "RuntimeNotFound"
    INVALID_RUNTIME = "InvalidRuntime"
    RUNTIME_DISABLED = "RuntimeDisabled"
    NO_RUNTIME_FITS = "NoRuntimeFits"
    ACCELERATOR_NOT_FOUND = "AcceleratorNotFound"
    NO_ACCELERATOR_FITS = "NoAcceleratorFits"
    REVISION_NOT_FOUND = "RevisionNotFound"
    REVISION_TOO_LARGE = "RevisionTooLarge"
    CONFIGURATION_REFUSED = "ConfigurationRefused"
    WAITING_FOR_NODES = "WaitingForNodes"
    NODES_UNKNOWN = "NodesUnknown"

    # How its pods are; those of the kubelet and of the scheduler are passed on besides
    CREATING = "Creating"
    PROGRESSING = "Progressing"
    PENDING = "Pending"
    CONTAINER_CREATING = "ContainerCreating"
    FAILED_MOUNT = "FailedMount"
    STARTING = "Starting"
    NOT_READY = "NotReady"
    TERMINATING = "Terminating"
    NODE_LOST = "NodeLost"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_PULL_BACK_OFF = "ImagePullBackOff"
    ERR_IMAGE_PULL = "ErrImagePull"
    CRASH_LOOP_BACK_OFF = "CrashLoopBackOff"
    PODS_REFUSED = "PodsRefused"
    PREFLIGHT_FAILED = "PreflightFailed"
    PREFLIGHT_FINDINGS = "PreflightFindings"

    # What the API server refused, or another owner holds
    NAME_TAKEN = "NameTaken"
    WAITING = "Waiting"
    INVALID = "Invalid"
    FORBIDDEN = "Forbidden"
    CONFLICT = "Conflict"
    SERVER_ERROR = "ServerError"

    # How a rollout goes
    NOTHING_TO_RUN = "NothingToRun"
    PAUSED = "Paused"
    WAITING_FOR_MODEL = "WaitingForModel"
    DOES_NOT_FIT = "DoesNotFit"
    WAITING_FOR_ROOM = "WaitingForRoom"
    CHECKING = "Checking"
    DRY_RUN_REFUSED = "DryRunRefused"
    WAITING_FOR_TURN = "WaitingForTurn"
    ROLLING_OUT = "RollingOut"
    RETIRING_OLD_SLICE = "RetiringOldSlice"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    ROLLED_BACK = "RolledBack"

    # Who holds a brake
    FROZEN = "Frozen"
    OBSERVED = "Observed"

    # How groups that failed come back
    RECYCLE_LIMIT = "RecycleLimit"
    STUCK_TERMINATING = "StuckTerminating"
    SYSTEMIC_FAULT = "SystemicFault"
    RECYCLING = "Recycling"
    RESTARTING = "Restarting"

    # What somebody else did
    STRANGER_IN_ROUTER = "StrangerInRouter"

    # Models, runtimes and accelerator classes
    DISABLED = "Disabled"
    ON_NO_NODE = "OnNoNode"
    DOWNLOADING = "Downloading"
    DOWNLOAD_FAILED = "DownloadFailed"
    NOT_SERVED = "NotServed"
    TOO_MANY_MODELS = "TooManyModels"
    INCOMPLETE = "Incomplete"
    EMPTY = "Empty"
    NO_DISCOVERY = "NoDiscovery"
    NO_NODES = "NoNodes"

    # BenchmarkJobs
    SERVICE_NOT_FOUND = "ServiceNotFound"
    SERVICE_NOT_READY = "ServiceNotReady"
    TRAFFIC_NOT_SERVED = "TrafficNotServed"
    FORMAT_NOT_SERVED = "FormatNotServed"
    PLACE_NOT_SERVED = "PlaceNotServed"
    NO_TOOLS_IMAGE = "NoToolsImage"
    NO_TOKENIZER = "NoTokenizer"
    RUNNING = "Running"
    REQUESTS_FAILED = "RequestsFailed"
    JOB_DELETED = "JobDeleted"
    FAILED = "Failed"
    EDITED_AFTER_START = "EditedAfterStart"

    # What a person should know
    NO_EFFECT = "NoEffect"
    REVISION_MISMATCH = "RevisionMismatch"
    FOREIGN_MANAGER = "ForeignManager"
    INTERNAL_ERROR = "InternalError"

    # All is as it should be
    READY = "Ready"
    FOUND = "Found"
    CLAIM = "Claim"
    COMPLETE = "Complete"
    COMPLETED = "Completed"
    SERVING = "Serving"
    RECOVERED = "Recovered"
    IN_SYNC = "InSync"
    ON_NODES = "OnNodes"
    USABLE = "Usable"
    VIRTUAL_DEPLOYMENT = "VirtualDeployment"


REFUSED = frozenset({Reason.CONFLICT, Reason.INVALID, Reason.FORBIDDEN})
"""Reasons of any condition when the API server refuses what we ask for."""
PASSING = frozenset(
    {
        Reason.PROGRESSING, Reason.CREATING, Reason.RETIRING_OLD_SLICE, Reason.WAITING_FOR_NODES, Reason.WAITING_FOR_TURN,
        Reason.STARTING, Reason.NOT_READY, Reason.RESTARTING, Reason.RECYCLING,
    }
)  # fmt: skip
"""Reasons that go away by themselves: no Event warns of them."""
GOOD = frozenset(
    {
        Reason.READY, Reason.FOUND, Reason.CLAIM, Reason.COMPLETE, Reason.COMPLETED, Reason.SERVING, Reason.RECOVERED,
        Reason.IN_SYNC, Reason.ON_NODES, Reason.USABLE, Reason.VIRTUAL_DEPLOYMENT,
    }
)  # fmt: skip
"""Reasons of conditions that are as they should be: nobody has to act on them."""
