"""Reasons of models, fine-tuned weights, runtimes and accelerator classes."""

from ome_operator.core.reasons.conditions import NODES_AGREE, READY
from ome_operator.core.reasons.record import Kstatus, ReasonRecord, State

FAILED, CURRENT, IN_PROGRESS = Kstatus.FAILED, Kstatus.CURRENT, Kstatus.IN_PROGRESS


class CatalogReasons:
    """States of the objects that services refer to."""

    DISABLED = ReasonRecord(
        "Disabled", of=(READY,), kstatus=CURRENT, state=State.OFF,
        meaning="`spec.disabled` is true: services that already use the object continue, but no new service may use it",
        remedy="set `spec.disabled` to false, if new services are to use it",
    )  # fmt: skip
    ON_NO_NODE = ReasonRecord(
        "OnNoNode", of=(READY,), kstatus=IN_PROGRESS, state=State.WAITING,
        meaning="no node holds the model",
        remedy='see "Nodes" below',
    )  # fmt: skip
    DOWNLOADING = ReasonRecord(
        "Downloading", of=(READY,), kstatus=IN_PROGRESS, state=State.WAITING,
        meaning="agents download its files",
        remedy="wait; the message and `status.nodes` show the progress",
    )  # fmt: skip
    DOWNLOAD_FAILED = ReasonRecord(
        "DownloadFailed", of=(READY,), kstatus=IN_PROGRESS,
        meaning="no node has the model, and no node is downloading it",
        remedy="the message names a node and the reason; agents try again by themselves",
    )  # fmt: skip
    UNCONFIRMED = ReasonRecord(
        "Unconfirmed", of=(READY, NODES_AGREE), kstatus=IN_PROGRESS, state=State.WAITING,
        meaning="a node reports the revision or the facts of the model, and no second node has confirmed them",
        remedy="wait: without another report, the report of this node is used after five minutes. If nodes disagree, name "
               "the commit in the URI (`hf://org/model@COMMIT`), or list the nodes whose reports decide in the chart "
               "value `agent.pinFrom`",
    )  # fmt: skip
    NODES_DISAGREE = ReasonRecord(
        "NodesDisagree", of=(NODES_AGREE,), kstatus=CURRENT,
        meaning="a node reports a revision or facts of the model that other nodes do not confirm",
        remedy="look at the agent and the disk of the node that the message names. If no revision is confirmed, name the "
        "commit in the URI (`hf://org/model@COMMIT`), or list the nodes whose reports decide in the chart value "
        "`agent.pinFrom`",
    )  # fmt: skip
    NOT_SERVED = ReasonRecord(
        "NotServed", of=(READY,), kstatus=IN_PROGRESS,
        meaning="no agent can download from a URI of this scheme",
        remedy="put the files on the nodes; then write `local:///path`, or label these nodes with "
        "`models.ome.io/clusterbasemodel.NAME=Ready` (for a BaseModel, `models.ome.io/NAMESPACE.basemodel.NAME=Ready`)",
    )  # fmt: skip
    TOO_MANY_MODELS = ReasonRecord(
        "TooManyModels", of=(READY,), kstatus=IN_PROGRESS,
        meaning="the namespace has more BaseModels than `modelsPerNamespace` of the chart (100). The oldest are used; "
        "the operator and its agents ignore this BaseModel",
        remedy="delete BaseModels that are not needed, make this BaseModel a ClusterBaseModel, or ask an administrator to "
               "raise the value",
    )  # fmt: skip
    INCOMPLETE = ReasonRecord(
        "Incomplete", of=(READY,), kstatus=CURRENT,
        meaning="a component of the runtime has no container to run",
        remedy="define a runner in the services, or add one to the runtime",
    )  # fmt: skip
    EMPTY = ReasonRecord(
        "Empty", of=(READY,), kstatus=FAILED,
        meaning="the runtime has neither `engineConfig` nor `containers`",
        remedy="add `engineConfig` with a runner",
    )  # fmt: skip
    NO_DISCOVERY = ReasonRecord(
        "NoDiscovery", of=(READY,), kstatus=FAILED,
        meaning="the AcceleratorClass has no rule by which nodes are recognized",
        remedy="write `spec.discovery.nodeSelector` with labels of the nodes",
    )  # fmt: skip
    NO_NODES = ReasonRecord(
        "NoNodes", of=(READY,), kstatus=IN_PROGRESS,
        meaning="no ready node has the labels by which the accelerator is recognized",
        remedy="compare `spec.discovery.nodeSelector` with the nodes' labels",
    )  # fmt: skip
