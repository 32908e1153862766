"""The settings on which decisions about services depend."""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from ome_operator.settings.option import Form, Option


class Exposure(NamedTuple):
    """The objects that make services reachable from outside of the cluster."""

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
    """The default is empty because an object needs rights on that kind (docs/exposure.md)."""
    domain: Annotated[
        str, Option(flag="--expose-domain", help="Hosts are SERVICE.NAMESPACE.DOMAIN.", value="exposure.domain")
    ] = ""
    """The annotations ome.io/ingress-… give a service other hosts, or none (docs/exposure.md)."""
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
    """The Gateway has to admit routes from the services' namespaces."""


UNEXPOSED = Exposure()


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The settings on which decisions about services depend: the core receives them unchanged (`Deps.policy`).

    Recordings contain these fields under their names (docs/recorder.md).
    """

    sees_cluster: Annotated[
        bool,
        Option(
            flag="--cluster-wide-kinds",
            help="Read cluster-wide models, runtimes and accelerator classes, and nodes.",
            value="clusterWideKinds",
        ),
    ] = True
    """False needs a list of namespaces to watch (`watchNamespaces`, `--watch-namespace`): the operator then has no
    ClusterRole, and services use only BaseModels and ServingRuntimes of their own namespace (docs/namespaces.md)."""
    gang_timeout: Annotated[
        float,
        Option(
            flag="--gang-timeout",
            help="Seconds within which all pods of a gang must be on nodes, or it releases its nodes. 0: no limit.",
            value="placement.timeout",
            ge=0,
            le=3600,
            chart_least=5,
        ),
    ] = 60.0
    """A gang is the first groups of a service, or a later group; the time begins with its first pod on a node. A gang that
    released its nodes is queued for admission (docs/placement.md). With the annotation `ome.io/ignore-fit`, or after an
    autoscaler's event about a pod, the limit is 20 minutes. In the chart
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
    """In YAML, write `"Off"` in quotes: without them it is read as false. The annotation `ome.io/preflight` of a service or
    its runtime takes precedence. A change applies to revisions that are made later, and restarts nothing
    (docs/preflight.md). The default is Off because the checks have not been tried on a GPU yet."""
    observe: Annotated[
        bool,
        Option(
            flag="--observe",
            help="Write nothing but statuses, which report what the operator would do.",
            value="operator.observe",
        ),
    ] = False
    """The chart's ClusterRole then permits nothing else (docs/observe-freeze.md)."""
    observe_namespaces: Annotated[
        frozenset[str],
        Option(
            flag="--observe-namespace",
            help="Namespaces in which nothing but statuses is written.",
            value="operator.observeNamespaces",
        ),
    ] = frozenset()
    """The operator works in all others. The annotation `ome.io/observe: "true"` does the same for a single service."""
    registry_image: Annotated[
        str,
        Option(
            flag="--sidecar-image",
            help="Image of the registry sidecar of routers (images/operator); empty: routers have no registry.",
            part_of="registry.image",
        ),
    ] = ""
    """There is no default because anybody could take an image name without a registry on a public registry."""
    router_keys: Annotated[
        bool,
        Option(
            flag="--router-keys",
            help="Create a Secret with a key for the control plane of each service's routers.",
            part_of="rbac.createSecrets",
        ),
    ] = True
    """It needs the right to create Secrets."""
    model_agent: Annotated[
        bool,
        Option(
            flag="--model-agent",
            help="Agents on the nodes fetch weights (`ome agent`): pods mount the agents' directories.",
            part_of="agent.enabled",
        ),
    ] = False
    """Pods of new revisions mount the directory of their model's revision (decisions 7)."""
    agent_roots: Annotated[
        tuple[str, ...],
        Option(
            flag="--agent-root",
            help="Directories that agents write below, as their --root; without any /mnt/models.",
            part_of="agent.roots",
        ),
    ] = ("/mnt/models",)
    policies_from: Annotated[
        str,
        Option(
            flag="--network-policies",
            help="Create NetworkPolicies, with which engines receive only traffic from pods of their service.",
            part_of="networkPolicy.services",
            form=Form.SWITCH,
        ),
    ] = ""
    """The default is off because it needs rights on NetworkPolicies, and other clients of the pods then need a policy of
    yours (docs/security.md)."""
    models_per_namespace: Annotated[
        int,
        Option(
            flag="--models-per-namespace",
            help="Most BaseModels of a namespace that are handled, the oldest first; 0: all.",
            value="modelsPerNamespace",
            ge=0,
        ),
    ] = 100
    """In the chart the agents have the same limit. The status of any other BaseModel reports that it is not handled;
    ClusterBaseModels always are. The limit exists because all tenants share the work for models (10 s for each node with
    2,000)."""
    scrapes_engines: Annotated[
        bool,
        Option(
            flag="--scrapes-engines",
            help="Prometheus scrapes engines: services whose engine serves no metrics report that.",
            part_of="metrics.engines.podMonitor",
        ),
    ] = False
    pull_secrets: Annotated[
        tuple[str, ...],
        Option(
            flag="--pull-secret",
            help="Secrets in users' namespaces with which pods there pull the operator's own images.",
            value="image.userPullSecrets",
        ),
    ] = ()
    """These pods are routers with their registry, and benchmarks. You create the Secrets in those namespaces; the operator
    writes only their names, because it cannot read Secrets."""
    exposure: Exposure = UNEXPOSED
