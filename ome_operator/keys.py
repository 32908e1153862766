"""Labels, annotations, ports and other names of the API, with who writes each of them and where.

They are part of the API: selectors of users, discovery of routers, and other operators depend on them.
"""

GROUP = "ome.io"
VERSION = "v1beta1"
API_VERSION = f"{GROUP}/{VERSION}"
MANAGER = "ome-operator"
"""Field manager of every server-side apply of ours, and the value of the `MANAGED_BY` label."""
SCALE_MANAGER = "ome-operator-scale"
"""Field manager of the single POST that sets RoleScale.spec.replicas; autoscalers own the field afterwards (decisions 4)."""

# --- labels that we write on every child and every pod -------------------------------------------------------------
MANAGED_BY = f"{GROUP}/managed-by"
"""Always `MANAGER`. Part of every selector of ours, because pods of another operator may carry the other labels."""
SERVICE = f"{GROUP}/inferenceservice"
"""Name of the InferenceService."""
COMPONENT = "component"
"""`engine`, `decoder` or `router`: the value that selectors of routers use."""
REVISION = f"{GROUP}/revision"
"""Revision of the slice that a workload or pod belongs to."""
GROUP_INDEX = f"{GROUP}/group"
"""Number of the group, on every engine pod and its StatefulSet."""
BENCHMARK = f"{GROUP}/benchmark"
"""Name of the BenchmarkJob (cut where it is too long), on its Job and that Job's pods, which carry no `SERVICE`."""

# --- labels of Kubernetes and LeaderWorkerSet ---------------------------------------------------------------------
POD_INDEX = "apps.kubernetes.io/pod-index"
"""Written by the StatefulSet controller: the ordinal, which is the rank; it does not identify the group."""
TEMPLATE = "controller-revision-hash"
"""Written by the StatefulSet controller: the name of the template that a pod was created from."""
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
"""`"0"` on leaders, so that routers written for LeaderWorkerSet find them; absent on workers."""

# --- annotations ---------------------------------------------------------------------------------------------------
HASH = f"{GROUP}/hash"
"""Digest of the manifest that we applied, on every object that we apply."""
BOOTSTRAP_PORT = "sglang.ai/bootstrap-port"
"""On prefill pods: the port on which decode ranks contact them; read by routers (8998 if absent)."""
DRAINING = f"{GROUP}/draining"
"""On leaders whose group is about to be removed, with any value: the registry removes them from the routers (decisions
9)."""
REGISTRY = f"{GROUP}/registry"
"""`"false"` on a service or on its router: its routers get no registry sidecar."""
ROUTER_KEY = f"{GROUP}/router-key"
"""On a service or on its router: `"false"` for a router without a key for its control plane, `"true"` if the router takes
a key although the name of its image does not show it."""
RUNTIME_SYNC, MODEL_SYNC = f"{GROUP}/runtime-sync", f"{GROUP}/model-sync"
"""On a service that does not follow edits of its runtime or model: any new value adopts the present state once."""
OPERATOR_CLASS = f"{GROUP}/operator-class"
"""Label on user-written objects: the class of the operator that acts on the object. Without it: operators without a
class."""
LEASE_CLASS = f"{GROUP}/operator-lease"
"""Label on an operator's Lease: its class, or "", so that two operators of the same class detect each other."""
RETRY = f"{GROUP}/rollout-retry"
"""On a service: any new value lets a rejected revision be tried again."""
WAVES, BAKE = f"{GROUP}/rollout-waves", f"{GROUP}/rollout-bake"
"""On a runtime, a model or an accelerator class: the waves in which its edits are rolled out, such as "1, 5%, 25%, 100%",
and the bake time, such as "5m", instead of the chart's values (docs/rollouts.md)."""

FREEZE = f"{GROUP}/freeze"
"""On a service, or on the operator's Lease for all services: nothing is rolled out, scaled or recycled
(docs/observe-freeze.md). The value states since when, by whom and why; "" and "false" do not freeze."""
OBSERVE = f"{GROUP}/observe"
"""On a service: only its status is written. "" and "false" have no effect."""

PREFLIGHT = f"{GROUP}/preflight"
"""On a service, on a component, or in the spec of a runtime: Off, Warn or Require; whether pods are checked before their
engine starts (docs/preflight.md)."""
TRACES = f"{GROUP}/otlp-traces-endpoint"
"""On a service, on a component, or in the spec of a runtime: HOST:PORT of a collector to which engines and routers send
their spans, or Off (docs/traces.md)."""

PREFLIGHT_RUN = f"{GROUP}/preflight-run"
"""Label on objects that `ome preflight` creates and removes: the run that created them. They carry none of our other
labels."""
PREFLIGHT_LABEL = f"preflight.{GROUP}/"
"""Prefix of labels of these pods, in place of the service's own labels: used for affinity between the pods of a run."""

IGNORE_FIT = f"{GROUP}/ignore-fit"
"""`"true"` on a service: a revision replaces the serving revision even if the existing nodes cannot hold it, because
nodes are added on demand."""

GENERATION = f"{GROUP}/generation"
"""On the Job of a BenchmarkJob: the generation of the spec that it runs."""
BENCHMARK_NAMESPACES = f"{GROUP}/benchmark-namespaces"
"""On a service: other namespaces, separated by commas, whose BenchmarkJobs may refer to it."""
SOURCE_DIGEST = f"{GROUP}/source"
"""On objects that were created from an object of sglang.ai: the digest of the spec that they were created from."""
ENGINE_NAME = f"{GROUP}/engine"
"""On a service that names no runtime: the engine that the selected runtime has to use, such as sglang."""
ENGINE_VERSION = f"{GROUP}/engine-version"
"""On a component or a service: the version of the engine, if the tag of the image does not state it (`ome lint`)."""
LINT_IGNORE = f"{GROUP}/lint-ignore"
"""On a service: ids of rules of `ome lint` that are skipped for it, separated by commas."""
ACCELERATOR_CLASS = f"{GROUP}/accelerator-class"
"""On a service: the AcceleratorClass of every component that names none itself."""
AUTOSCALER_CLASS = f"{GROUP}/autoscalerClass"
SERVICE_TYPE = f"{GROUP}/service-type"
LOAD_BALANCER_IP = f"{GROUP}/load-balancer-ip"
"""On a service of type LoadBalancer: the address to request from the cloud."""
INGRESS_OFF = f"{GROUP}/ingress-disable-creation"
INGRESS_DOMAIN, INGRESS_MORE = f"{GROUP}/ingress-domain", f"{GROUP}/ingress-additional-domains"
INGRESS_TEMPLATE = f"{GROUP}/ingress-domain-template"
"""The four above: on a service, if the operator creates Ingresses or HTTPRoutes: none for this service, or other hosts than
those of the chart."""
VOLCANO_QUEUE, DEDICATED_CLUSTER = f"{GROUP}/volcano-queue", f"{GROUP}/dedicated-ai-cluster"
KUEUE_ENABLED = "kueue-enabled"
"""The three above: on a service or a component, as in OME: the queue of its pods. With `KUEUE_ENABLED` a dedicated cluster
is a queue of Kueue, otherwise of Volcano."""
SSH_KEYS = f"{GROUP}/ssh-keys"
"""On a component: the name of a volume with SSH keys for its pods, from a Secret that is created for the service."""
SSH_SECRET = f"{GROUP}/ssh-keys"
"""Type of that Secret: the operator may write Secrets of its own types only."""
ROUTER_KEY_SECRET = f"{GROUP}/router-key"
"""Type of the Secret with the key for the control plane of a service's routers."""
ROUTER_KEY_FIELD = "key"
"""The entry of that Secret."""
ROUTER_KEY_VARIABLE = "OME_ROUTER_KEY"
"""Variable in which a router and its registry sidecar get that key."""
KUEUE_LABEL, VOLCANO_LABEL = "kueue.x-k8s.io/queue-name", "volcano.sh/queue-name"
"""On pods: the queue of Kueue or Volcano that places them."""
RDMA_INJECT = f"rdma.{GROUP}/auto-inject"
RDMA_PROFILE = f"rdma.{GROUP}/profile"
RDMA_CONTAINER = f"rdma.{GROUP}/container-name"

# --- labels on nodes, written by the model plane -------------------------------------------------------------------
WEIGHTS = ".ome"
"""Directory next to a model's path with a subdirectory for each of its revisions, in which pods find the weights
(decisions 7)."""
AGENT = "ome-agent"
"""Name and field manager of the agents, which write nothing but NodeModels."""
MODEL_LABEL_PREFIX = f"models.{GROUP}/"
MODEL_READY, MODEL_UPDATING, MODEL_FAILED = "Ready", "Updating", "Failed"

# --- values --------------------------------------------------------------------------------------------------------
ENGINE, DECODER, ROUTER = "engine", "decoder", "router"
RUNNER = "ome-container"
"""Default name of the main container of a component (OME's name, so that users' runtimes merge)."""
PREFLIGHT_CONTAINER = "ome-preflight"
"""Name of the init container that checks a pod's node before its engine starts."""
REGISTRY_PORT = 29001
"""Port on which the registry sidecar of a router answers probes and reports the state of its workers; the router's
metrics are on 29000."""
STRANGERS, STRANGER_AT = "ome_registry_strangers", "ome_registry_stranger_seen_timestamp_seconds"
"""Metrics of the registry on that port: foreign workers in the router's list, and when the last one was found. The
operator reads them."""
SERVICE_PORT = 80
"""The port of the public Service that people port-forward to, in addition to the router's own port."""
