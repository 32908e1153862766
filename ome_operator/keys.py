"""Labels, annotations, ports and other names of the API. Each is described with the component that writes it and the
object that has it.

These names are part of the API: selectors of users, discovery of routers, and other operators depend on them.
"""

GROUP = "ome.io"
VERSION = "v1beta1"
API_VERSION = f"{GROUP}/{VERSION}"
MANAGER = "ome-operator"
"""Field manager of all server-side applies of the operator, and the value of the `MANAGED_BY` label."""
SCALE_MANAGER = "ome-operator-scale"
"""Field manager of the single POST that sets RoleScale.spec.replicas. Afterwards autoscalers own the field (decisions 4)."""

# --- labels that we write on every child and every pod -------------------------------------------------------------
MANAGED_BY = f"{GROUP}/managed-by"
"""Label whose value is always `MANAGER`. It is part of every selector of the operator, because pods of another operator
may have the other labels."""
SERVICE = f"{GROUP}/inferenceservice"
"""Label with the name of the InferenceService to which an object belongs."""
COMPONENT = "component"
"""Label with the name of a component, `engine`, `decoder` or `router`. The selectors of routers use this label."""
REVISION = f"{GROUP}/revision"
"""Label with the revision of the service from which a workload or pod was created."""
GROUP_INDEX = f"{GROUP}/group"
"""Label with the number of the group, on every engine pod and its StatefulSet."""
BENCHMARK = f"{GROUP}/benchmark"
"""Label with the name of the BenchmarkJob, shortened if it is too long, on the Job and the Job's pods. The Job and its pods
have no `SERVICE` label."""

# --- labels of Kubernetes and LeaderWorkerSet ---------------------------------------------------------------------
POD_INDEX = "apps.kubernetes.io/pod-index"
"""Label that the StatefulSet controller writes: the ordinal of a pod in its StatefulSet, which is the pod's rank in the
group. The label does not identify the group."""
TEMPLATE = "controller-revision-hash"
"""Label that the StatefulSet controller writes: the name of the template from which a pod was created."""
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
"""Label with the value `"0"` on leaders, so that routers written for LeaderWorkerSet find the leaders. Workers do not
have the label."""

# --- annotations ---------------------------------------------------------------------------------------------------
HASH = f"{GROUP}/hash"
"""Annotation on every object that the operator applies: the digest of the applied manifest."""
BOOTSTRAP_PORT = "sglang.ai/bootstrap-port"
"""Annotation on prefill pods: the port on which decode ranks contact them. Routers read the annotation, and use 8998 if it
is absent."""
DRAINING = f"{GROUP}/draining"
"""Annotation on the leader pods of a group that is about to be removed, with any value. The registry removes these leaders
from the routers (decisions 9)."""
EXCLUDED_NODES = f"{GROUP}/excluded-nodes"
"""Annotation on a StatefulSet of a group: the names of the nodes on which its pods are not placed, separated by commas. It
is set when the group is created, and never changes (docs/bad-nodes.md)."""
FORGIVEN = f"{GROUP}/forgiven"
"""Annotation on a NodeFaults: the time when a person forgave the node its faults, in RFC 3339. Earlier faults are ignored
(docs/bad-nodes.md)."""
SCALE_DOWN_MARK = f"{GROUP}/node-scale-down"
"""Annotation on pods whose nodes autoscalers must not remove. It lists the annotations that the operator wrote to prevent
the removal, separated by commas."""
MOVE = f"{GROUP}/move"
"""Annotation on a node or a service: the move that `ome move` asked for (docs/moves.md). On a node, its value is a time,
optionally followed by "now". On a service, its value names groups, each with a time, such as "decoder/2
2026-11-28T03:00:00Z", separated by commas."""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Annotation on a router's pod that is being moved off its node. The ReplicaSet deletes this pod first when it is scaled
down."""
KARPENTER_KEEP = "karpenter.sh/do-not-disrupt"
AUTOSCALER_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
REGISTRY = f"{GROUP}/registry"
"""Annotation on a service or its router component: with the value `"false"`, the service's routers get no registry
sidecar."""
ANSWERED_BY, REGISTRY_ANSWERS = f"{GROUP}/answered-by", "registry"
"""Label on a Service with this value, while no engine runs and the Service therefore sends requests to the registry
sidecars of the routers."""
ROUTER_KEY = f"{GROUP}/router-key"
"""Annotation on a service or its router component. `"false"` if the router's control plane must have no key; `"true"` if
the router accepts a key although the name of its image does not indicate this."""
RUNTIME_SYNC, MODEL_SYNC = f"{GROUP}/runtime-sync", f"{GROUP}/model-sync"
"""Annotations on a service that does not follow edits of its runtime or model. Any new value makes the service adopt the
current runtime or model once."""
OPERATOR_CLASS = f"{GROUP}/operator-class"
"""Label on objects that users write: the class of the operator that handles the object. Objects without the label are
handled by operators without a class."""
LEASE_CLASS = f"{GROUP}/operator-lease"
"""Label on an operator's Lease: the operator's class, or "". By this label, two operators of the same class detect each
other."""
RETRY = f"{GROUP}/rollout-retry"
"""Annotation on a service: any new value permits another attempt to roll out a rejected revision."""
WAVES, BAKE = f"{GROUP}/rollout-waves", f"{GROUP}/rollout-bake"
"""Annotations on a runtime, a model or an accelerator class: the waves in which its edits are rolled out, such as "1, 5%,
25%, 100%", and the bake time, such as "5m", instead of the chart's values (docs/rollouts.md)."""

FREEZE = f"{GROUP}/freeze"
"""Annotation on a service, or on the operator's Lease for all services: while it is set, nothing is rolled out, scaled or
recycled (docs/observe-freeze.md). The value states since when, by whom and why. The values "" and "false" do not freeze."""
OBSERVE = f"{GROUP}/observe"
"""Annotation on a service: while it is set, the operator writes only the service's status. The values "" and "false" have no
effect."""

PREFLIGHT = f"{GROUP}/preflight"
"""Annotation on a service, on a component, or in the spec of a runtime: `Off`, `Warn` or `Require`. It determines whether
pods are checked before their engine starts (docs/preflight.md)."""
TRACES = f"{GROUP}/otlp-traces-endpoint"
"""Annotation on a service, on a component, or in the spec of a runtime: HOST:PORT of the collector to which engines and
routers send their spans, or Off (docs/traces.md)."""

COMPILE_CACHE = f"{GROUP}/compile-cache"
"""Annotation on a service, a component or a runtime's spec: with `"true"`, the agents of the nodes keep what the engine
compiles, and later starts on the same node use it (docs/compile-caches.md)."""
PREFLIGHT_RUN = f"{GROUP}/preflight-run"
"""Label on objects that `ome preflight` creates and removes: the name of the run that created them. These objects have
none of the operator's other labels."""
PREFLIGHT_LABEL = f"preflight.{GROUP}/"
"""Prefix of labels on the pods of `ome preflight`, which replace the service's own labels. They are used for affinity
between the pods of a run."""

IMAGE_PULL = f"{GROUP}/image-pull"
"""Label on the pods that pull the images of a new revision onto nodes before its rollout: the revision. These pods have none
of the operator's other labels."""

IGNORE_FIT = f"{GROUP}/ignore-fit"
"""Annotation on a service. With the value `"true"`, a new revision replaces the serving revision even if the existing nodes
have no capacity for it, because nodes are added on demand."""

WAKE_GENERATION = f"{GROUP}/wake-generation"
"""Annotation on a RoleScale: the generation that the operator wrote when it woke the service from zero. If the RoleScale
still has this generation, nobody has set its number of replicas by hand since then (docs/scaling.md)."""
SCALED_BACK = f"{GROUP}/scaled-back"
"""Annotation on a service: the size to which `ome scale --undo` returned, such as "prefill=2,decode=1,routers=1". The
service keeps this size instead of scaling with its demand (docs/demand.md)."""
GENERATION = f"{GROUP}/generation"
"""Annotation on the Job of a BenchmarkJob: the generation of the BenchmarkJob's spec that the Job runs."""
BENCHMARK_NAMESPACES = f"{GROUP}/benchmark-namespaces"
"""Annotation on a service: other namespaces, separated by commas, whose BenchmarkJobs may refer to it."""
SOURCE_DIGEST = f"{GROUP}/source"
"""Annotation on objects that were created from an object of sglang.ai: the digest of the spec that they were created
from."""
ENGINE_NAME = f"{GROUP}/engine"
"""Annotation on a service that names no runtime: the engine that the selected runtime must use, such as sglang."""
ENGINE_VERSION = f"{GROUP}/engine-version"
"""Annotation on a component or a service: the version of the engine, for `ome lint`, if the tag of the image does not
contain it."""
LINT_IGNORE = f"{GROUP}/lint-ignore"
"""Annotation on a service: ids of the rules of `ome lint` that are skipped for the service, separated by commas."""
ACCELERATOR_CLASS = f"{GROUP}/accelerator-class"
"""Annotation on a service: the AcceleratorClass of every component that names no class itself."""
AUTOSCALER_CLASS = f"{GROUP}/autoscalerClass"
SERVICE_TYPE = f"{GROUP}/service-type"
LOAD_BALANCER_IP = f"{GROUP}/load-balancer-ip"
"""Annotation on a service of type LoadBalancer: the IP address to request from the cloud provider."""
INGRESS_OFF = f"{GROUP}/ingress-disable-creation"
INGRESS_DOMAIN, INGRESS_MORE = f"{GROUP}/ingress-domain", f"{GROUP}/ingress-additional-domains"
INGRESS_TEMPLATE = f"{GROUP}/ingress-domain-template"
"""The four `INGRESS_…` annotations on a service have an effect if the operator creates Ingresses or HTTPRoutes. They disable
the Ingress or HTTPRoute of this service, or set other host names than the chart's."""
VOLCANO_QUEUE, DEDICATED_CLUSTER = f"{GROUP}/volcano-queue", f"{GROUP}/dedicated-ai-cluster"
KUEUE_ENABLED = "kueue-enabled"
"""`VOLCANO_QUEUE`, `DEDICATED_CLUSTER` and `KUEUE_ENABLED` are set on a service or a component, as in OME, and determine the
queue of its pods. With `KUEUE_ENABLED`, the value of `DEDICATED_CLUSTER` is the name of a Kueue queue, otherwise of a
Volcano queue."""
SSH_KEYS = f"{GROUP}/ssh-keys"
"""Annotation on a component: the name of a volume with SSH keys for its pods, from a Secret that is created for the
service."""
SSH_SECRET = f"{GROUP}/ssh-keys"
"""Type of the Secret with SSH keys. The operator may write only Secrets of its own types."""
ROUTER_KEY_SECRET = f"{GROUP}/router-key"
"""Type of the Secret with the key for the control plane of a service's routers."""
ROUTER_KEY_FIELD = "key"
"""Entry of the Secret of type `ROUTER_KEY_SECRET` that contains the key."""
ROUTER_KEY_VARIABLE = "OME_ROUTER_KEY"
"""Environment variable that contains the key for a router's control plane, in the router and in its registry sidecar."""
KUEUE_LABEL, VOLCANO_LABEL = "kueue.x-k8s.io/queue-name", "volcano.sh/queue-name"
"""Labels on pods: the queue of Kueue or Volcano that admits the pods."""
KUEUE_GROUP, KUEUE_COUNT = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
"""Name of a label and of an annotation: the label contains the name of a group of pods, the annotation their number.
Kueue admits the group as a whole, once all of its pods exist."""
KUEUE_SERVING = "kueue.x-k8s.io/pod-group-serving"
"""Annotation on the pods of a pod group that never completes. A pod that ends is replaced within the quota of its group."""
KUEUE_MANAGED, KUEUE_PARENT = "kueue.x-k8s.io/managed", "kueue.x-k8s.io/pod-suspending-parent"
"""Label and annotation on pods that their owner, instead of Kueue's webhook, places under the control of Kueue. Kueue
adds no finalizer to them (0.16 or newer)."""
RDMA_INJECT = f"rdma.{GROUP}/auto-inject"
RDMA_PROFILE = f"rdma.{GROUP}/profile"
RDMA_CONTAINER = f"rdma.{GROUP}/container-name"

# --- labels on nodes, written by the model plane -------------------------------------------------------------------
WEIGHTS = ".ome"
"""Directory next to a model's path that contains a subdirectory for each revision of the model, in which pods find the
weights (decisions 7)."""
AGENT = "ome-agent"
"""Name and field manager of the agents, which write nothing but NodeModels."""
GPU_PRODUCTS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name")
"""Labels on nodes that the vendors' software sets, and whose value is the model of the node's GPUs."""
MODEL_LABEL_PREFIX = f"models.{GROUP}/"
MODEL_READY, MODEL_UPDATING, MODEL_FAILED = "Ready", "Updating", "Failed"

# --- values --------------------------------------------------------------------------------------------------------
ENGINE, DECODER, ROUTER = "engine", "decoder", "router"
RUNNER = "ome-container"
"""Default name of the main container of a component. It is OME's name, so existing runtimes of users merge with it."""
PREFLIGHT_CONTAINER = "ome-preflight"
"""Name of the init container that checks a pod's node before its engine starts."""
COMPILE_CACHE_CONTAINER, COMPILE_CACHE_SIDECAR = "ome-compile-cache", "ome-compile-cache-seal"
"""Names of the init container that copies a compile cache into a pod, and of the sidecar that hands the engine's cache to
the agent."""
REGISTRY_PORT = 29001
"""Port on which the registry sidecar of a router answers probes and reports the state of its workers."""
ANSWER_PORT = 29002
"""Port on which the registry sidecar of a router answers requests while no engine runs (docs/scaling.md)."""
ROUTER_METRICS_PORT = 29000
"""Default port of the metrics of SGLang's router."""
FOREIGN_WORKERS, FOREIGN_WORKER_AT = "ome_registry_strangers", "ome_registry_stranger_seen_timestamp_seconds"
"""Metrics that the registry exposes on `REGISTRY_PORT`, and that the operator reads: the number of workers in the router's
list that the registry did not add, and the time when the last of them was found."""
SERVICE_PORT = 80
"""Port of the service's main Service. Users can forward it to their machine, in addition to the router's own port."""
