"""Reasons why an object, or an object that it refers to, cannot be used."""

from ome_operator.core.reasons.conditions import (
    ADVICE,
    ANOTHER,
    COMPLETE,
    COMPONENTS,
    DRIFTED,
    ENGINE_READY,
    MODEL_READY,
    READY,
    ROLLED_OUT,
    RUNTIME_READY,
)
from ome_operator.core.reasons.record import Kstatus, ReasonRecord, RolloutStage, State

FAILED, CURRENT, IN_PROGRESS = Kstatus.FAILED, Kstatus.CURRENT, Kstatus.IN_PROGRESS


class InputReasons:
    """Problems of the spec, and of the objects that it refers to."""

    INVALID_SPEC = ReasonRecord(
        "InvalidSpec", of=(READY, ROLLED_OUT, COMPLETE), kstatus=FAILED,
        meaning="a field of the object has an invalid value, so the operator cannot use the object",
        remedy="correct the field that the message names",
    )  # fmt: skip
    NOT_SEEN = ReasonRecord(
        "NotSeen", of=(READY, COMPLETE), kstatus=IN_PROGRESS, state=State.WAITING, passing=True,
        meaning="no operator has processed the object yet; the CRD sets this status as its default",
        remedy="wait some seconds. If nothing changes, check three things: the operator runs; it watches the namespace of "
               "the object ([namespaces](namespaces.md)); and it has the class that the object's label "
               "`ome.io/operator-class` names",
    )  # fmt: skip
    FORMER_SHAPE = ReasonRecord(
        "FormerShape", of=(READY,), kstatus=IN_PROGRESS,
        meaning="the running objects were created by an older version of the operator, which had one StatefulSet for all "
                "leaders of a role. Nothing of the service is changed or deleted",
        remedy="run the older version again; or delete the InferenceService, which ends its pods, and apply it again",
    )  # fmt: skip
    MODEL_NOT_NAMED = ReasonRecord(
        "ModelNotNamed", of=(MODEL_READY,), kstatus=FAILED,
        meaning="the name of the model is missing, or its `kind` does not exist",
        remedy="set `spec.model.name`, or correct `kind`",
    )  # fmt: skip
    RUNTIME_NOT_NAMED = ReasonRecord(
        "RuntimeNotNamed", of=(RUNTIME_READY,), kstatus=FAILED,
        meaning="the name of the runtime is missing, or its `kind` does not exist",
        remedy="set `spec.runtime.name`, or correct `kind`",
    )  # fmt: skip
    NO_ENGINE = ReasonRecord(
        "NoEngine", of=(ENGINE_READY,), kstatus=FAILED,
        meaning="the service has no engine, so there is nothing to run",
        remedy="add `engine: {}`, which uses the engine of the runtime",
    )  # fmt: skip
    NO_CONTAINER = ReasonRecord(
        "NoContainer", of=COMPONENTS, kstatus=IN_PROGRESS,
        meaning="a component has no container to run",
        remedy="give the runtime or the service a runner for the component",
    )  # fmt: skip
    INVALID_POD = ReasonRecord(
        "InvalidPod", of=(*COMPONENTS, READY, COMPLETE), kstatus=IN_PROGRESS,
        meaning="a part of a pod spec has the wrong shape, or is not a field of a pod",
        remedy="correct the field that the message names; the message also names a valid field with a similar name",
    )  # fmt: skip
    SCALED_TO_ZERO = ReasonRecord(
        "ScaledToZero", of=(READY,), kstatus=CURRENT, state=State.OFF,
        meaning="a component of the service has no replicas, such as decode in a service with prefill and decode",
        remedy="run `ome wake SERVICE`, raise `minReplicas` of the component, or remove the component from the service",
    )  # fmt: skip
    BASE_MODEL_NOT_FOUND = ReasonRecord(
        "BaseModelNotFound", of=(MODEL_READY, READY), kstatus=IN_PROGRESS,
        meaning="the model does not exist, or does not exist yet",
        remedy="apply the model, or correct the name or the `kind`",
    )  # fmt: skip
    INVALID_MODEL = ReasonRecord(
        "InvalidModel", of=(MODEL_READY,), kstatus=IN_PROGRESS,
        meaning="the model exists but cannot be read, or its path is a directory of the nodes' operating system",
        remedy="correct the field of the model that the message names",
    )  # fmt: skip
    MODEL_DISABLED = ReasonRecord(
        "ModelDisabled", of=(MODEL_READY,), kstatus=IN_PROGRESS,
        meaning="`spec.disabled` of the model is true",
        remedy="enable the model, or use another model",
    )  # fmt: skip
    MODEL_UNKNOWN = ReasonRecord(
        "ModelUnknown", of=(RUNTIME_READY,), kstatus=IN_PROGRESS,
        meaning="no runtime is named, and none can be chosen before the model exists",
        remedy="apply the model",
    )  # fmt: skip
    FINE_TUNED_WEIGHT_NOT_FOUND = ReasonRecord(
        "FineTunedWeightNotFound", of=(MODEL_READY,), kstatus=IN_PROGRESS,
        meaning="`spec.model.fineTunedWeights` names a FineTunedWeight that does not exist",
        remedy="apply the FineTunedWeight, or correct the name",
    )  # fmt: skip
    INVALID_FINE_TUNED_WEIGHT = ReasonRecord(
        "InvalidFineTunedWeight", of=(MODEL_READY,), kstatus=IN_PROGRESS,
        meaning="`spec.model.fineTunedWeights` names a FineTunedWeight that cannot be read",
        remedy="correct the field of the FineTunedWeight that the message names",
    )  # fmt: skip
    FINE_TUNED_WEIGHT_DISABLED = ReasonRecord(
        "FineTunedWeightDisabled", of=(MODEL_READY,), kstatus=IN_PROGRESS,
        meaning="`spec.model.fineTunedWeights` names a FineTunedWeight whose `spec.disabled` is true",
        remedy="enable it",
    )  # fmt: skip
    WRONG_BASE_MODEL = ReasonRecord(
        "WrongBaseModel", of=(MODEL_READY,), kstatus=IN_PROGRESS,
        meaning="a fine-tuned weight was trained on another model",
        remedy="name weights of this model",
    )  # fmt: skip
    WEIGHTS_DO_NOT_MIX = ReasonRecord(
        "WeightsDoNotMix", of=(MODEL_READY,), kstatus=IN_PROGRESS,
        meaning="merged weights replace the model's own weights, so no other fine-tuned weight can be used with them",
        remedy="name them alone",
    )  # fmt: skip
    CLAIM_IN_OTHER_NAMESPACE = ReasonRecord(
        "ClaimInOtherNamespace", of=(MODEL_READY,), kstatus=IN_PROGRESS,
        meaning="the model's `pvc://` URI names a claim of another namespace, which a pod cannot mount",
        remedy="create a claim in the service's namespace, and a BaseModel there that names it",
    )  # fmt: skip
    RUNTIME_NOT_FOUND = ReasonRecord(
        "RuntimeNotFound", of=(RUNTIME_READY,), kstatus=IN_PROGRESS,
        meaning="the runtime does not exist, or does not exist yet",
        remedy="apply the runtime, or correct the name or the `kind`",
    )  # fmt: skip
    INVALID_RUNTIME = ReasonRecord(
        "InvalidRuntime", of=(RUNTIME_READY,), kstatus=IN_PROGRESS,
        meaning="the runtime exists but cannot be read",
        remedy="correct the field of the runtime that the message names",
    )  # fmt: skip
    RUNTIME_DISABLED = ReasonRecord(
        "RuntimeDisabled", of=(RUNTIME_READY,), kstatus=IN_PROGRESS,
        meaning="`spec.disabled` of the runtime is true",
        remedy="enable the runtime, or use another runtime",
    )  # fmt: skip
    NO_RUNTIME_FITS = ReasonRecord(
        "NoRuntimeFits", of=(RUNTIME_READY, READY), kstatus=IN_PROGRESS,
        meaning="no runtime is named, and no runtime fits the model; the message names the rules that exclude each "
                "runtime, the closest runtime first",
        remedy="`ome explain runtime -f FILE` lists all runtimes with the rules that exclude them",
        see="See [choosing](choosing.md)",
    )  # fmt: skip
    ACCELERATOR_NOT_FOUND = ReasonRecord(
        "AcceleratorNotFound", of=(RUNTIME_READY,), kstatus=IN_PROGRESS,
        meaning="the named AcceleratorClass does not exist",
        remedy="apply the AcceleratorClass (`config/accelerators`), or correct the name",
    )  # fmt: skip
    NO_ACCELERATOR_FITS = ReasonRecord(
        "NoAcceleratorFits", of=(RUNTIME_READY,), kstatus=IN_PROGRESS,
        meaning="no AcceleratorClass meets the requirements of `acceleratorSelector` and of the runtime",
        remedy="lower the requirements, or name a class",
    )  # fmt: skip
    REVISION_NOT_FOUND = ReasonRecord(
        "RevisionNotFound", of=(MODEL_READY, RUNTIME_READY, ROLLED_OUT), kstatus=FAILED,
        meaning="`spec.rollout.revision`, `spec.runtime.revision` or `spec.model.revision` names a revision that is "
                "not stored",
        remedy="name a revision that `ome history NAME` lists, or remove the field",
    )  # fmt: skip
    REVISION_TOO_LARGE = ReasonRecord(
        "RevisionTooLarge", of=(ENGINE_READY,), kstatus=IN_PROGRESS,
        meaning="the rendered engine and decoder are larger than a stored revision may be",
        remedy="move large values to a ConfigMap",
    )  # fmt: skip
    CONFIGURATION_REFUSED = ReasonRecord(
        "ConfigurationRefused", of=(ROLLED_OUT,), kstatus=IN_PROGRESS, loud=True,
        meaning="SGLang's own argument parser would exit at the flags that the message names, on every GPU. The operator "
                "neither stores nor rolls out the edit; the serving revision continues to serve and scale. A revision that "
                "is stored already is never refused",
        remedy="write what the message names, and see `ome lint NAME` ([lint](lint.md#what-the-operator-refuses)). If the "
               "message is wrong, run `kubectl annotate isvc NAME ome.io/lint-ignore=RULE` with the rule that the message "
               "names",
    )  # fmt: skip
    WAITING_FOR_NODES = ReasonRecord(
        "WaitingForNodes", of=(MODEL_READY,), kstatus=IN_PROGRESS, state=State.WAITING, stage=RolloutStage.WEIGHTS,
        passing=True, printed=True,
        meaning="fewer nodes hold the model than the service needs, so some of its pods wait for a further node",
        remedy="the nodes that hold the model: kubectl get nodes{holders}",
        see='See "Nodes" below',
    )  # fmt: skip
    NODES_UNKNOWN = ReasonRecord(
        "NodesUnknown", of=(MODEL_READY, READY), kstatus=IN_PROGRESS, state=State.WAITING,
        meaning="the operator reads no nodes (`clusterWideKinds=false`), so it cannot determine whether any node holds "
                "the model. The rollout does not wait for the model, but the pods stay Pending until a node holds it",
        remedy="check whether a node has the label that the message names ([namespaces](namespaces.md))",
    )  # fmt: skip
    LINT_ERRORS = ReasonRecord(
        "LintErrors", of=(ADVICE,), kstatus=CURRENT,
        meaning="the service violates a rule of `ome lint` of the severity error: with these arguments engines end, or "
                "requests fail. The operator does not refuse the service, because a rule may be wrong",
        remedy="follow the message, or disable the rule with `ome.io/lint-ignore`; `ome lint NAME` shows all findings",
        see="See [rules](rules.md)",
    )  # fmt: skip
    LINT_WARNINGS = ReasonRecord(
        "LintWarnings", of=(ADVICE,), kstatus=CURRENT,
        meaning="the service violates a rule of `ome lint` of the severity warning, and no rule of the severity "
                "error",
        remedy="follow the message; `ome lint NAME` shows all findings",
        see="See [rules](rules.md)",
    )  # fmt: skip
    CLUSTER_WARNINGS = ReasonRecord(
        "ClusterWarnings", of=(ADVICE,), kstatus=CURRENT,
        meaning="the API server warns about objects of the service, for example because the Pod Security level of the "
                "namespace does not allow its pods. Or another object of the cluster disturbs the service, such as a "
                "second PodDisruptionBudget. If the service also violates a rule of `ome lint` of the severity error, the "
                "reason is LintErrors instead",
        remedy="follow the message, which contains the API server's words",
    )  # fmt: skip
    NO_EFFECT = ReasonRecord(
        "NoEffect", of=(ADVICE,), kstatus=CURRENT,
        meaning="a field or annotation has no effect, or the operator has a hint; the service violates no rule of `ome "
                "lint`. The row Advice of the table of conditions lists the possible hints",
        remedy="follow the message, which names the field, or ignore it, because the service does not wait for you",
    )  # fmt: skip
    REVISION_MISMATCH = ReasonRecord(
        "RevisionMismatch", of=tuple(DRIFTED.values()), kstatus=CURRENT,
        meaning=(
            "with `autoSync: false`: the runtime or model was edited after the service had adopted it, and the service "
            "keeps the previous version"
        ),
        remedy="follow the message, so that the service adopts the edit ([revisions](revisions.md))",
    )  # fmt: skip
    FOREIGN_MANAGER = ReasonRecord(
        "ForeignManager", of=(ANOTHER,), kstatus=IN_PROGRESS,
        meaning="another operator writes the status of this service, so this operator changes nothing until five minutes "
                "after the last write of the other operator",
        remedy="stop one of the two operators ([coming from OME](migrate.md))",
    )  # fmt: skip
    INTERNAL_ERROR = ReasonRecord(
        "InternalError", of=(READY, ROLLED_OUT, COMPLETE), kstatus=IN_PROGRESS, printed=True,
        meaning="the operator failed because of a bug; other services are not affected",
        remedy="report the bug with the traceback in the log of the operator",
    )  # fmt: skip
