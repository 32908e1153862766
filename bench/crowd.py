"""Creates the objects of a fleet in the form in which an API server returns them: nodes, models, services, records, and
models of other users.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from bench.scenarios import SINGLE, Manifest, catalog
from ome_operator import keys, names

MODEL, STRANGER, SERVICE, RUNTIME = "ClusterBaseModel", "BaseModel", "InferenceService", "ClusterServingRuntime"
RECORD, NODE, CLASS = "NodeModels", "Node", "AcceleratorClass"
IMAGES = 20
ACCELERATOR = {
    "vendor": "nvidia", "family": "hopper", "model": "h200", "discovery": {"nodeSelector": {"gpu": "h200"}},
    "capabilities": {"memoryGB": "141"}, "resources": [{"name": "nvidia.com/gpu", "quantity": "1"}],
}  # fmt: skip


@dataclass(frozen=True)
class Size:
    """The number of objects of each kind."""

    nodes: int = 200
    models: int = 50
    services: int = 50
    records: int = 0
    """Number of nodes with a NodeModels object, in which their agent reports that the node holds all models."""
    strangers: int = 0
    """BaseModels in other namespaces that no service uses."""

    @property
    def all_nodes(self) -> int:
        """Number of nodes, including those with a NodeModels object."""
        return max(self.nodes, self.records)


class Crowd:
    """Creates the objects of a fleet. Each object has a newer resource version than all objects that were created
    before it.
    """

    def __init__(self, size: Size) -> None:
        self.size, self._version = size, 0
        self._catalog = catalog()
        self._model = next(each["spec"] for each in self._catalog if each["kind"] == MODEL)

    def everything(self) -> dict[str, Iterator[Manifest]]:
        """Return the objects of each kind, each of which is created only when it is requested. All nodes hold all models."""
        size = self.size
        return {
            MODEL: (self.model(number) for number in range(size.models)),
            STRANGER: (self.stranger(number) for number in range(size.strangers)),
            RUNTIME: (self.runtime(number) for number in (1,)),
            CLASS: (self._body(name, {}, spec=ACCELERATOR) for name in ("h200",)),
            SERVICE: (self.service(number) for number in range(size.services)),
            RECORD: (self.record(number, 0) for number in range(size.records)),
            NODE: (self.node(number, "Ready") for number in range(size.all_nodes)),
        }

    def runtime(self, generation: int) -> Manifest:
        """Return the runtime of all services. Each generation has different engines."""
        spec = next(each["spec"] for each in self._catalog if each["metadata"]["name"] == SINGLE[1].runtime)
        engine = spec["engineConfig"]
        runner = engine["runner"] | {"env": [{"name": "EDIT", "value": str(generation)}]}
        edited = spec | {"engineConfig": engine | {"runner": runner}}
        return self._body(SINGLE[1].runtime, {"generation": generation}, spec=edited)

    def _body(self, name: str, metadata: Manifest, **parts: Manifest) -> Manifest:
        self._version += 1000  # the next version is for a status that is written meanwhile
        given = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(self._version), "generation": 1}
        return {"metadata": given | metadata, **parts}

    def node(self, number: int, text: str = "", *, other: str = "", ready: bool = True) -> Manifest:
        """Return a node. If `text` is not "", the node has a label for every model, with this value. If `other` is not
        "", the label of the model with the number `number` modulo the number of models has the value `other` instead.
        """
        about = {names.model_label(MODEL, "", f"model-{each}"): text for each in range(self.size.models if text else 0)}
        if other:
            about[names.model_label(MODEL, "", f"model-{number % self.size.models}")] = other
        fields: Manifest = {"f:metadata": {"f:labels": {f"f:{label}": {} for label in about}}}
        applied = {"manager": keys.MANAGER, "operation": "Apply", "apiVersion": "v1", "fieldsV1": fields}
        metadata = {
            "labels": {"gpu": "h200", "kubernetes.io/hostname": f"node-{number}"} | about,
            "managedFields": [applied],
        }
        status = {
            "conditions": [{"type": "Ready", "status": str(ready), "lastHeartbeatTime": str(self._version)}],
            "allocatable": {"nvidia.com/gpu": "8", "cpu": "192", "memory": "2Ti"},
            "images": [
                {"names": [f"registry/image-{each}@sha256:{each:064}"], "sizeBytes": 10**9} for each in range(IMAGES)
            ],
        }
        return self._body(f"node-{number}", metadata, spec={"providerID": f"cloud:///{number}"}, status=status)

    def model(self, number: int, generation: int = 1) -> Manifest:
        """Return a cluster-scoped model."""
        return self._body(f"model-{number}", {"generation": generation}, spec=self._spec(number))

    def stranger(self, number: int) -> Manifest:
        """Return a BaseModel that no service uses. A namespace has fifty of these models."""
        metadata = {"namespace": f"team-{number // 50}", "creationTimestamp": f"2026-01-01T{number:08}Z"}
        return self._body(f"stranger-{number}", metadata, spec=self._spec(number))

    def service(self, number: int) -> Manifest:
        """Return a service. Services use the models in turn."""
        spec = SINGLE[1].service(number)["spec"] | {"model": {"kind": MODEL, "name": f"model-{number % self.size.models}"}}
        return self._body(f"service-{number}", {"namespace": "bench"}, spec=spec)

    def _spec(self, number: int) -> Manifest:
        return {**self._model, "storage": {"storageUri": f"hf://org/model-{number}", "path": f"/mnt/models/model-{number}"}}

    def record(self, number: int, fetched: int) -> Manifest:
        """Return the NodeModels object of a node. The node holds all models except the model with the number `number` modulo
        the number of models. Of this model it has `fetched` bytes.
        """
        held = [
            {"kind": MODEL, "name": f"model-{each}", "uri": f"hf://org/model-{each}", "revision": "r", "state": "Ready"}
            | {"bytes": 10**12, "total": 10**12}
            for each in range(self.size.models)
        ]
        held[number % self.size.models] |= {"state": "Updating", "bytes": fetched, "speed": 10**9}
        return self._body(f"node-{number}", {"uid": f"uid-record-{number}"}, status={"models": held})


def encoded(body: Manifest) -> bytes:
    """Return an object as it is transferred over the network."""
    return json.dumps(body, separators=(",", ":")).encode()
