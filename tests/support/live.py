"""Objects and pods of the simulated cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.core.observed import route
from ome_operator.core.observed.objects import Child, Manifest, Pod
from ome_operator.core.observed.times import Times
from ome_operator.core.rollout.node_scale_down import FORBIDDEN

Key = tuple[str, str]
"""Kind and name of an object."""


@dataclass
class Live:
    """An object that the simulated API server stores."""

    manifest: Manifest
    uid: str
    version: int
    owner: str
    hash: str
    owned: str
    deleting: bool = False
    status: Manifest = field(default_factory=dict)
    changed: str = ""
    """Time of the operator's last change, in RFC 3339."""
    generation: int = 1
    """metadata.generation, which only a RoleScale has."""

    @property
    def key(self) -> Key:
        """Return kind and name."""
        return self.manifest["kind"], self.manifest["metadata"]["name"]

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels."""
        return dict(self.manifest["metadata"].get("labels") or {})

    def woken_by(self, change: Manifest) -> None:
        """Set the annotations and the spec of the RoleScale to those of `change`, as the operator does when a request
        arrives.
        """
        changes = change["spec"] != self.manifest["spec"]
        metadata = {**self.manifest["metadata"], "annotations": change["metadata"]["annotations"]}
        self.manifest = {**self.manifest, "metadata": metadata, "spec": change["spec"]}
        self.generation += changes

    def facts(self, service: InferenceService) -> Child:
        """Return the object in the form in which a reconciliation of the service reads it."""
        kind, name = self.key
        content = None
        if kind == "ControllerRevision":
            content = {"revision": self.manifest["revision"], "data": self.manifest["data"]}
        elif kind == "RoleScale":
            content = self.status
        elif kind == "Job":
            content = {"status": self.status, "generation": 0}
        elif kind == "HTTPRoute":
            content = {"weights": route.weights(self.manifest), "changed": self.changed}
        replicas = int((self.manifest.get("spec") or {}).get("replicas", 0))
        return Child(
            kind, service.namespace, name, self.uid, self.version, self.owner, self.labels, self.hash, self.owned,
            self.deleting, replicas, "", content, excluded=self._excluded(),
            generation=self.generation if kind == "RoleScale" else 0,
            woken=int((self.manifest["metadata"].get("annotations") or {}).get(keys.WAKE_GENERATION, 0)),
        )  # fmt: skip

    def _excluded(self) -> tuple[str, ...]:
        said = (self.manifest["metadata"].get("annotations") or {}).get("ome.io/excluded-nodes")
        return tuple(said.split(",")) if said else ()


@dataclass
class LivePod:
    """A pod of the simulated cluster, with the time that its termination takes."""

    name: str
    uid: str
    labels: dict[str, str]
    workload: str
    workload_uid: str
    grace: int
    ready: bool = False
    since: str = ""
    """Time at which the pod became ready, in RFC 3339; "" if a test made it ready."""
    deleting: bool = False
    left: int = 0
    template: str = ""
    draining: str = ""
    created: str = ""
    """Time at which the pod was created, in RFC 3339; "" if a test made it."""
    notes: dict[str, str] = field(default_factory=dict)
    """Annotations that were written while the pod was running."""
    node: str = ""
    """Name of the node that the pod is bound to; "" if the test does not schedule pods, or if the pod is pending."""
    scheduled: bool = False
    """Whether the test schedules pods. If so, the containers of a pod run only after it has a node."""

    @property
    def group(self) -> int:
        """Return the number of the pod's group; 0 for routers."""
        return int(self.labels.get(keys.GROUP_INDEX, "0"))

    @property
    def rank(self) -> int:
        """Return the rank of the pod; 0 for leaders and routers."""
        return int(self.labels.get(keys.POD_INDEX, "0"))

    def serves(self, now: datetime) -> None:
        """Make the pod ready."""
        self.ready, self.since = True, now.isoformat()

    def annotate(self, changes: Mapping[str, str | None]) -> None:
        """Apply a merge patch to the annotations of the pod."""
        self.notes = {key: value for key, value in {**self.notes, **changes}.items() if value is not None}
        if keys.DRAINING in changes:
            self.draining = changes[keys.DRAINING] or ""

    def facts(self, service: InferenceService) -> Pod:
        """Return the pod in the form in which a reconciliation of the service reads it."""
        return Pod(
            namespace=service.namespace, name=self.name, uid=self.uid, version=1, service=service.name,
            component=self.labels[keys.COMPONENT], revision=self.labels[keys.REVISION], group=self.group, rank=self.rank,
            workload=self.workload, node=self.node, ready=self.ready, deleting=self.deleting,
            grace=self.grace if self.deleting else 0, restarts=0, reason="" if self.ready else "Starting", message="",
            workload_uid=self.workload_uid, draining=self.draining,
            times=Times(created=self.created, ready=self.since if self.ready else ""),
            running=bool(self.node) or self.ready or not self.scheduled,
            scale_down=tuple(key for key in FORBIDDEN if key in self.notes),
            scale_down_mark=self.notes.get(keys.SCALE_DOWN_MARK, ""), yields=keys.DELETION_COST in self.notes,
        )  # fmt: skip
