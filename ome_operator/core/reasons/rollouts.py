"""Reasons why objects cannot be written, and why rollouts are not complete."""

from ome_operator.core.reasons.conditions import COMPLETE, COMPONENTS, FROZEN, READY, RECOVERED, ROLLED_OUT
from ome_operator.core.reasons.record import Kstatus, ReasonRecord, RolloutStage, State

FAILED, IN_PROGRESS = Kstatus.FAILED, Kstatus.IN_PROGRESS
_REFUSALS = (*COMPONENTS, READY, ROLLED_OUT)
_HOLDS = (FROZEN, *COMPONENTS, RECOVERED, ROLLED_OUT, COMPLETE)


class ObjectReasons:
    """Errors of the API server, and name conflicts with other objects."""

    NAME_TAKEN = ReasonRecord(
        "NameTaken", of=(*COMPONENTS, READY, COMPLETE), kstatus=IN_PROGRESS,
        meaning="an object of the required name exists and does not belong to this service",
        remedy="rename the object that the message names, or the service. If OME made the object, run `ome adopt service "
        "NAMESPACE/NAME` ([coming from OME](migrate.md))",
    )  # fmt: skip
    WAITING = ReasonRecord(
        "Waiting", of=(*COMPONENTS, READY, COMPLETE), kstatus=IN_PROGRESS, state=State.WAITING,
        meaning="an object of a deleted service or BenchmarkJob of the same name still exists",
        remedy="wait",
    )  # fmt: skip
    INVALID = ReasonRecord(
        "Invalid", of=_REFUSALS, kstatus=IN_PROGRESS, loud=True,
        meaning="the API server refuses an object that the operator rendered",
        remedy="correct the field of the pod that its message names",
    )  # fmt: skip
    FORBIDDEN = ReasonRecord(
        "Forbidden", of=_REFUSALS, kstatus=IN_PROGRESS, loud=True,
        meaning="the operator has no right to write the object",
        remedy="check the rights: `kubectl auth can-i … --as system:serviceaccount:ome:ome-operator`. The namespace must "
        "not be the operator's own, and not be in `admissionPolicy.forbiddenNamespaces`. If the message contains \"cannot "
        "set blockOwnerDeletion\" (OpenShift), install the chart with `rbac.ownerReferencesPermissionEnforcement=true`",
    )  # fmt: skip
    CONFLICT = ReasonRecord(
        "Conflict", of=_REFUSALS, kstatus=IN_PROGRESS, loud=True,
        meaning="the API server repeatedly answers 409 when the operator changes or deletes the object that the "
                "message names",
        remedy="wait, because the operator tries again. If the conflict lasts, read the answer in the condition's "
               "message: a webhook or a proxy may have sent it",
    )  # fmt: skip
    SERVER_ERROR = ReasonRecord(
        "ServerError", of=_REFUSALS, kstatus=IN_PROGRESS,
        meaning=(
            "the API server repeatedly answers 5xx for the object that the message names, mostly because a webhook does "
            "not answer"
        ),
        remedy="repair the webhook that the message names, or exempt the namespace from it. The operator tries again",
    )  # fmt: skip


class RolloutReasons:
    """Reasons why a rollout waits."""

    NOTHING_TO_RUN = ReasonRecord(
        "NothingToRun", of=(ROLLED_OUT,), kstatus=IN_PROGRESS,
        meaning="the operator can render nothing for the service, which has no stored revision; running pods are "
                "kept",
        remedy="read the other conditions",
    )  # fmt: skip
    PAUSED = ReasonRecord(
        "Paused", of=(ROLLED_OUT,), kstatus=IN_PROGRESS, state=State.HELD, stage=RolloutStage.RELEASED, printed=True,
        meaning="`spec.rollout.paused` is true; the serving revision continues to serve",
        remedy="remove spec.rollout.paused to continue: ome resume {service}",
    )  # fmt: skip
    FROZEN = ReasonRecord(
        "Frozen", of=_HOLDS, kstatus=IN_PROGRESS, state=State.HELD, stage=RolloutStage.RELEASED,
        meaning="a user has frozen the service, or all services ([observe and freeze](observe-freeze.md)). A frozen "
                "BenchmarkJob starts after the thaw",
        remedy="run `ome thaw NAME`, or `ome thaw --all`; the message names the command",
    )  # fmt: skip
    OBSERVED = ReasonRecord(
        "Observed", of=(*_HOLDS, READY), kstatus=IN_PROGRESS, state=State.HELD, stage=RolloutStage.RELEASED,
        meaning="the operator only observes: `operator.observe` or `operator.observeNamespaces` of the chart is set, or "
        "the annotation `ome.io/observe`",
        remedy="remove this setting or annotation to let the operator act",
    )  # fmt: skip
    WAITING_FOR_MODEL = ReasonRecord(
        "WaitingForModel", of=(ROLLED_OUT,), kstatus=IN_PROGRESS, state=State.WAITING, stage=RolloutStage.WEIGHTS,
        meaning="too few nodes hold the model of the new revision, so the old revision serves meanwhile",
        remedy='wait, or see "Nodes" below',
    )  # fmt: skip
    DOES_NOT_FIT = ReasonRecord(
        "DoesNotFit", of=(ROLLED_OUT, *COMPONENTS), kstatus=IN_PROGRESS, state=State.WAITING, stage=RolloutStage.CAPACITY,
        loud=True, stops=True, printed=True,
        meaning="the existing nodes could not hold all groups even if they were empty; the message names the label, taint "
                "or amount that is missing. A new revision that would replace a serving revision waits, and the serving "
                "revision stays. The pods of a new service are created",
        remedy="add or label such nodes, or request less; the rollout then continues by itself. If nodes are added on "
               "demand: kubectl annotate isvc {service} ome.io/ignore-fit=true",
        see="See [placement](placement.md)",
    )  # fmt: skip
    WAITING_FOR_ROOM = ReasonRecord(
        "WaitingForRoom", of=(ROLLED_OUT, *COMPONENTS), kstatus=IN_PROGRESS, state=State.WAITING,
        stage=RolloutStage.CAPACITY, loud=True, printed=True,
        meaning="nodes have too little free capacity now. If the groups of a component did not all get nodes in time, "
                "they have released their nodes and are queued for admission. A new revision that would replace a serving "
                "revision waits, and the serving revision stays. The message states how much of the required capacity is "
                "free, which services hold the rest, and why pods could not be created, for example because of a "
                "quota",
        remedy=(
            "free the resources that the message names, or wait: the operator makes a new attempt when capacity seems "
            "sufficient, and every five minutes"
        ),
        see="See [placement](placement.md#no-partial-gangs)",
    )  # fmt: skip
    CHECKING = ReasonRecord(
        "Checking", of=(ROLLED_OUT,), kstatus=IN_PROGRESS, state=State.STARTING, stage=RolloutStage.ACCEPTED,
        meaning="the operator asks the API server to validate the new workloads and their pods (a dry run), or reads the "
                "free capacity; the old revision serves meanwhile",
        remedy="wait. If the message contains an error, repair what the message names, such as a webhook: the operator "
               "repeats the dry run of the pods for five minutes, and then continues the rollout without it",
    )  # fmt: skip
    DRY_RUN_REFUSED = ReasonRecord(
        "DryRunRefused", of=(ROLLED_OUT,), kstatus=IN_PROGRESS, stage=RolloutStage.ACCEPTED,
        meaning="the API server refuses the new workloads or their pods in a dry run (an admission policy, Pod Security, "
                "a LimitRange), or a quota would have too little left for the new pods after the old pods are gone. The "
                "old revision serves meanwhile",
        remedy="correct what the message names; the operator repeats the dry run within five minutes. To ignore quotas: "
               "kubectl annotate isvc NAME ome.io/ignore-fit=true",
    )  # fmt: skip
    WAITING_FOR_TURN = ReasonRecord(
        "WaitingForTurn", of=(ROLLED_OUT,), kstatus=IN_PROGRESS, state=State.WAITING, stage=RolloutStage.WAVE,
        passing=True, printed=True,
        meaning="an edit of a runtime, a model or an accelerator class reaches its services in waves "
        "([rollouts](rollouts.md#waves)); the message names the wave and the object",
        remedy="wait until the bake time of the previous wave has passed; if a service of that wave failed, correct the "
               "edit or this service. For larger waves, annotate the object with ome.io/rollout-waves=50%. The status of "
               "the object shows the progress",
    )  # fmt: skip
    PULLING_IMAGES = ReasonRecord(
        "PullingImages", of=(ROLLED_OUT,), kstatus=IN_PROGRESS, state=State.STARTING, stage=RolloutStage.READY,
        passing=True,
        meaning="the images of the new revision are pulled onto the nodes of the serving groups, which continue to serve "
                "meanwhile ([rollouts](rollouts.md#images-first))",
        remedy="wait: the rollout begins when the images are there, or after `rollout.imagePullTimeout`",
    )  # fmt: skip
    ROLLING_OUT = ReasonRecord(
        "RollingOut", of=(ROLLED_OUT,), kstatus=IN_PROGRESS, state=State.STARTING, stage=RolloutStage.READY,
        meaning="two revisions serve; the message states the new groups that are ready and the old groups that are "
                "ending ([rollouts](rollouts.md))",
        remedy="wait. If there is no progress, either new groups do not become ready, or pods of old groups do not end "
               "and still hold accelerators",
    )  # fmt: skip
    RETIRING_OLD_SLICE = ReasonRecord(
        "RetiringOldSlice", of=(ROLLED_OUT,), kstatus=IN_PROGRESS, state=State.STARTING, stage=RolloutStage.ALONE,
        passing=True,
        meaning="pods of the old revision end first",
        remedy="wait; a pod that stays Terminating is on a lost node, or still uses its grace period",
    )  # fmt: skip
    PROGRESS_DEADLINE_EXCEEDED = ReasonRecord(
        "ProgressDeadlineExceeded", of=(ROLLED_OUT,), kstatus=IN_PROGRESS, stage=RolloutStage.READY, loud=True,
        meaning="the new revision's pods have made no progress for `spec.rollout.readyTimeout` (1 h if it is not set); "
        "the message names what is not ready",
        remedy="correct the cause, or go back: `ome undo NAME`",
    )  # fmt: skip
    ROLLED_BACK = ReasonRecord(
        "RolledBack", of=(ROLLED_OUT,), kstatus=FAILED, loud=True,
        meaning="with `spec.rollout.onFailure: Rollback`: the new revision failed, and the previous revision serves "
                "again; `status.rejected` contains the reason",
        remedy="correct the cause and edit the service, or run `ome retry NAME`",
    )  # fmt: skip
