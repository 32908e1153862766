"""The settings that influence decisions about services."""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from ome_operator import keys
from ome_operator.settings.option import Form, Option

ENABLE_AGENTS = "set agent.enabled=true (outside of the cluster, the option --model-agent)"
"""Instruction how to switch on `Policy.model_agent`, for messages."""
ENABLE_COMPILE_CACHES = "set agent.enabled=true and agent.compileCacheGB (outside of the cluster, --compile-caches)"
"""Instruction how to switch on `Policy.compile_caches`, for messages."""
AGENT_PODS = f"kubectl get pods -A -l app.kubernetes.io/name={keys.AGENT}"
"""Command that lists the pods of the chart's model agents, for messages."""
SILENT_AGENTS = f"kubectl get nodemodels lists the agents that report; if there are none: {AGENT_PODS}"
"""Instructions for messages about weights that no agent has reported."""


class Exposure(NamedTuple):
    """The objects that make services reachable from outside the cluster."""

    kind: Annotated[
        str,
        Option(
            flag="--expose",
            help="Kind of the object that the operator creates for each service: Ingress or HTTPRoute; empty: neither.",
            part_of="exposure.kind",
            choices=("", "Ingress", "HTTPRoute"),
            fix="write Ingress or HTTPRoute, or leave it out.",
        ),
    ] = ""
    """The default is empty because the operator needs permissions for that kind (docs/exposure.md)."""
    domain: Annotated[
        str,
        Option(
            flag="--expose-domain", help="Domain of the hosts, which are SERVICE.NAMESPACE.DOMAIN.", value="exposure.domain"
        ),
    ] = ""
    """The annotations ome.io/ingress-… of a service set other hosts or disable the exposure (docs/exposure.md)."""
    ingress_class: Annotated[
        str,
        Option(
            flag="--ingress-class",
            help="IngressClass of the Ingresses; empty: the cluster's default.",
            value="exposure.ingressClassName",
        ),
    ] = ""
    gateway: Annotated[
        str, Option(flag="--gateway", help="Gateway of the HTTPRoutes, as namespace/name.", value="exposure.gateway")
    ] = ""
    """The Gateway has to accept routes from the services' namespaces."""
    domains: Annotated[
        tuple[str, ...],
        Option(
            flag="--expose-other-domain",
            help="NAMESPACE=DOMAIN: a domain that annotations of services in the namespace may use; *: every namespace.",
            value="exposure.domains",
            pattern=r"(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)=[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
            fix="write NAMESPACE=DOMAIN, such as team-a=example.org.",
        ),
    ] = ()
    """Without this option, hosts end in NAMESPACE.DOMAIN. The operator may write objects that its users may not write, so
    nobody may choose a host of another namespace by an annotation (docs/exposure.md)."""
    annotations: Annotated[
        tuple[str, ...],
        Option(
            flag="--expose-annotation",
            help="Annotation of services that is copied to the Ingress or HTTPRoute; NAME/ copies all with this prefix.",
            value="exposure.annotations",
        ),
    ] = ()
    """The default is none, because some controllers execute annotations as configuration (docs/exposure.md)."""


UNEXPOSED = Exposure()


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The settings that influence decisions about services. The core receives this object unchanged (`Deps.policy`).

    Recordings contain the fields under their names in this class (docs/recorder.md).
    """

    sees_cluster: Annotated[
        bool,
        Option(
            flag="--cluster-wide-kinds",
            help="Read cluster-wide models, runtimes, accelerator classes and nodes.",
            value="clusterWideKinds",
        ),
    ] = True
    """False requires a list of namespaces to watch (`watchNamespaces`, `--watch-namespace`): the operator then has no
    ClusterRole, and services can use only BaseModels and ServingRuntimes of their own namespace (docs/namespaces.md)."""
    gang_timeout: Annotated[
        float,
        Option(
            flag="--gang-timeout",
            help=(
                "Seconds within which all pods of a gang must be scheduled; otherwise the gang releases its nodes. 0: "
                "no limit."
            ),
            value="placement.timeout",
            ge=0,
            le=3600,
            chart_least=5,
        ),
    ] = 60.0
    """A gang is the first groups of a service, or a later group. The time begins when the first pod of the gang is on a
    node. A gang that released its nodes is queued for admission (docs/placement.md). With the annotation
    `ome.io/ignore-fit`, or after an autoscaler's event about a pod, the limit is 20 minutes. In the chart
    `placement.gangs: false` sets no limit."""
    preflight: Annotated[
        str,
        Option(
            flag="--preflight",
            help="Check pods of new revisions before their engine starts: Off, Warn or Require.",
            value="preflight.default",
            choices=("Off", "Warn", "Require"),
        ),
    ] = "Off"
    """In YAML, write `"Off"` in quotes, because YAML reads Off without quotes as false. The annotation `ome.io/preflight`
    of a service or its runtime takes precedence. A change applies to revisions that are created later and restarts no
    pods (docs/preflight.md). The default is Off because the checks have not been tested on RDMA devices or
    between several GPUs yet."""
    observe: Annotated[
        bool,
        Option(
            flag="--observe",
            help="Change nothing but the status of objects, which reports what the operator would do.",
            value="operator.observe",
        ),
    ] = False
    """The chart's ClusterRole then permits no other writes (docs/observe-freeze.md)."""
    observe_namespaces: Annotated[
        frozenset[str],
        Option(
            flag="--observe-namespace",
            help="Namespaces in which the operator changes nothing but the status of objects.",
            value="operator.observeNamespaces",
        ),
    ] = frozenset()
    """The operator writes as usual in all other namespaces. The annotation `ome.io/observe: "true"` has the same effect
    for a single service."""
    registry_image: Annotated[
        str,
        Option(
            flag="--sidecar-image",
            help="Image of the registry sidecar of routers (images/operator); empty: routers have no registry.",
            part_of="registry.image",
        ),
    ] = ""
    """There is no default, because an image name without a registry would refer to a public registry, where anyone could
    publish that image."""
    router_keys: Annotated[
        bool,
        Option(
            flag="--router-keys",
            help="Create a Secret with a key for the control plane of each service's routers.",
            part_of="rbac.createSecrets",
        ),
    ] = True
    """The operator then needs permission to create Secrets."""
    image_pulls: Annotated[
        int,
        Option(
            flag="--image-pulls",
            help="Number of images of new revisions that are pulled onto nodes at the same time before rollouts; 0: none.",
            value="rollout.imagePulls",
            ge=0,
            le=1000,
        ),
    ] = 0
    """The number counts over all services. A Job in the service's namespace pulls the image onto each node on which
    groups would be replaced, and the groups serve meanwhile (docs/rollouts.md). The default is 0 for two reasons: the
    nodes need disk space for both images, and the operator needs permission to create these Jobs."""
    image_pull_timeout: Annotated[
        float,
        Option(
            flag="--image-pull-timeout",
            help="Seconds for which a rollout waits for its images on the nodes.",
            value="rollout.imagePullTimeout",
            ge=30,
            le=3600,
        ),
    ] = 600.0
    """A rollout whose images are not on the nodes by then begins as it would without this option."""
    model_agent: Annotated[
        bool,
        Option(
            flag="--model-agent",
            help="Agents on the nodes download weights (`ome agent`), and pods mount the agents' directories.",
            part_of="agent.enabled",
        ),
    ] = False
    """Pods of new revisions mount the directory of their model's revision (decisions 7)."""
    agent_roots: Annotated[
        tuple[str, ...],
        Option(
            flag="--agent-root",
            help="Directories in which agents store models, equal to --root of `ome agent`; if unset: /mnt/models.",
            part_of="agent.roots",
        ),
    ] = ("/mnt/models",)
    compile_caches: Annotated[
        bool,
        Option(
            flag="--compile-caches",
            help="Agents keep the compile caches of engines that request it (`ome agent --compile-cache-gb`).",
            part_of="agent.compileCacheGB",
        ),
    ] = False
    """Services request a cache with the annotation `ome.io/compile-cache` (docs/compile-caches.md)."""
    pin_from: Annotated[
        frozenset[str],
        Option(
            flag="--pin-from",
            help=(
                "Nodes whose agents decide which revision and facts of a model apply to all nodes; "
                "empty: any two that agree."
            ),
            value="agent.pinFrom",
        ),
    ] = frozenset()
    """Without this option, two nodes have to agree, because an agent is trusted with its own node only
    (docs/tenancy.md)."""
    policies_from: Annotated[
        str,
        Option(
            flag="--network-policies",
            help="Create NetworkPolicies that allow only pods of the same service to connect to engines.",
            part_of="networkPolicy.services",
            form=Form.SWITCH,
        ),
    ] = ""
    """The default is off because the operator needs permissions for NetworkPolicies, and you have to create policies for
    other clients of the pods (docs/security.md)."""
    keda: Annotated[
        bool,
        Option(
            flag="--keda",
            help="Create a ScaledObject of KEDA for each component whose autoscaler has the class KEDA.",
            part_of="keda.enabled",
        ),
    ] = False
    """The default is off for two reasons: the operator needs permissions for ScaledObjects, and whoever may write
    services can then let KEDA read what its triggers name (docs/scaling.md#keda). Without KEDA in the cluster, nothing is
    created."""
    models_per_namespace: Annotated[
        int,
        Option(
            flag="--models-per-namespace",
            help="Maximum number of BaseModels of a namespace that are used, the oldest first; 0: no limit.",
            value="modelsPerNamespace",
            ge=0,
        ),
    ] = 100
    """The chart gives the agents the same limit. The status of a BaseModel beyond the limit reports that it is not
    handled; ClusterBaseModels are always handled. The limit exists because all tenants share the work for models (10 s
    for each node with 2,000 models)."""
    scrapes_engines: Annotated[
        bool,
        Option(
            flag="--scrapes-engines",
            help=(
                "Prometheus scrapes the engines: the condition Advice of a service then reports an engine that "
                "serves no metrics."
            ),
            part_of="metrics.engines.podMonitor",
        ),
    ] = False
    pull_secrets: Annotated[
        tuple[str, ...],
        Option(
            flag="--pull-secret",
            help="Names of Secrets in the namespaces of services, for pulling the operator's own images.",
            value="image.userPullSecrets",
        ),
    ] = ()
    """These pods are routers with the registry sidecar, and benchmarks. You create the Secrets in those namespaces. The
    operator writes only their names, because it cannot read Secrets."""
    exposure: Exposure = UNEXPOSED
