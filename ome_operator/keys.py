"""Labels, annotations, ports and other words of the API, each with who writes it and where.

They are API: users' selectors, routers' discovery and other operators read them.
"""

GROUP = "ome.io"
VERSION = "v1beta1"
API_VERSION = f"{GROUP}/{VERSION}"
MANAGER = "ome-operator"
"""Field manager of every server-side apply of ours, and the value of the `MANAGED_BY` label."""
SCALE_MANAGER = "ome-operator-scale"
"""Field manager of the one POST that sets RoleScale.spec.replicas; autoscalers own the field afterwards (decisions 4)."""

# --- labels that we write on every child and every pod -------------------------------------------------------------
MANAGED_BY = f"{GROUP}/managed-by"
"""Always `MANAGER`. In every selector of ours, because another operator's pods may carry the other labels."""
SERVICE = f"{GROUP}/inferenceservice"
"""Name of the InferenceService."""
COMPONENT = "component"
"""`engine`, `decoder` or `router`: the word that routers' selectors use."""
REVISION = f"{GROUP}/revision"
"""Revision of the slice that a workload or pod belongs to."""
GROUP_INDEX = f"{GROUP}/group"
"""Number of the group, on every engine pod and its StatefulSet."""
BENCHMARK = f"{GROUP}/benchmark"
"""Name of the BenchmarkJob (cut where it is too long), on its Job and that Job's pods, which carry no `SERVICE`."""

# --- labels that Kubernetes or LeaderWorkerSet users know ----------------------------------------------------------
POD_INDEX = "apps.kubernetes.io/pod-index"
"""Written by the StatefulSet controller: the ordinal, which is the rank; it says nothing about the group."""
TEMPLATE = "controller-revision-hash"
"""Written by the StatefulSet controller: the name of the template that a pod was made from."""
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
"""`"0"` on leaders, so that routers written for LeaderWorkerSet find them; workers do not carry it."""

# --- annotations ---------------------------------------------------------------------------------------------------
HASH = f"{GROUP}/hash"
"""Digest of the manifest that we applied, on every object that we apply."""
BOOTSTRAP_PORT = "sglang.ai/bootstrap-port"
"""On prefill pods: where decode ranks meet them; routers read it (absent: 8998)."""
DRAINING = f"{GROUP}/draining"
"""On leaders whose group is about to go, with any value: the registry takes them out of the routers (decisions 9)."""
REGISTRY = f"{GROUP}/registry"
"""`"false"` on a service, or on its router: routers without the registry beside them."""
RUNTIME_SYNC, MODEL_SYNC = f"{GROUP}/runtime-sync", f"{GROUP}/model-sync"
"""On a service that does not follow edits of its runtime or model: any new value takes it as it is then, once."""
RETRY = f"{GROUP}/rollout-retry"
"""On a service: any new value lets a rejected revision be tried again."""

GENERATION = f"{GROUP}/generation"
"""On the Job of a BenchmarkJob: the generation of the spec that it runs."""
SOURCE_DIGEST = f"{GROUP}/source"
"""On what was made of an object of sglang.ai: the digest of the spec that it was made of."""
ENGINE_NAME = f"{GROUP}/engine"
"""On a service that names no runtime: the engine that the chosen one has to run, such as sglang."""
ACCELERATOR_CLASS = f"{GROUP}/accelerator-class"
"""On a service: the AcceleratorClass of every component that names none itself."""
AUTOSCALER_CLASS = f"{GROUP}/autoscalerClass"
SERVICE_TYPE = f"{GROUP}/service-type"
LOAD_BALANCER_IP = f"{GROUP}/load-balancer-ip"
"""On a service of type LoadBalancer: the address that the cloud is asked for."""
VOLCANO_QUEUE, DEDICATED_CLUSTER = f"{GROUP}/volcano-queue", f"{GROUP}/dedicated-ai-cluster"
KUEUE_ENABLED = "kueue-enabled"
"""On a service or a component, as OME has them: the queue of its pods. With the third a dedicated cluster is Kueue's."""
SSH_KEYS = f"{GROUP}/ssh-keys"
"""On a component: the name of a volume with SSH keys for its pods, from a Secret that is made for the service."""
SSH_SECRET = f"{GROUP}/ssh-keys"
"""Type of that Secret: nothing else may be written as one."""
RDMA_INJECT = f"rdma.{GROUP}/auto-inject"
RDMA_PROFILE = f"rdma.{GROUP}/profile"
RDMA_CONTAINER = f"rdma.{GROUP}/container-name"

# --- labels on nodes, written by the model plane -------------------------------------------------------------------
WEIGHTS = ".ome"
"""Beside a model's path: a directory for each of its revisions, in which pods find the weights (decisions 7)."""
AGENT = "ome-agent"
"""Name and field manager of the agents, which write NodeModels and nothing else."""
MODEL_LABEL_PREFIX = f"models.{GROUP}/"
MODEL_READY, MODEL_UPDATING, MODEL_FAILED = "Ready", "Updating", "Failed"

# --- values --------------------------------------------------------------------------------------------------------
ENGINE, DECODER, ROUTER = "engine", "decoder", "router"
RUNNER = "ome-container"
"""Default name of the main container of a component (OME's name, so that users' runtimes merge)."""
REGISTRY_PORT = 29001
"""Where the registry beside a router answers probes and says how its workers stand; the router's metrics have 29000."""
SERVICE_PORT = 80
"""The port of the external Service that people port-forward to, beside the router's own."""
