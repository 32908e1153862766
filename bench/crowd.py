"""Bodies of a fleet as an API server would tell them: nodes, models, services, records, and what strangers have."""

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
    """How many there are of everything."""

    nodes: int = 200
    models: int = 50
    services: int = 50
    records: int = 0
    """Nodes with the record of an agent that holds all models."""
    strangers: int = 0
    """BaseModels of other namespaces, which no service uses."""

    @property
    def all_nodes(self) -> int:
        """Those with a record, too."""
        return max(self.nodes, self.records)


class Crowd:
    """Makes bodies; each has a newer version than all before."""

    def __init__(self, size: Size) -> None:
        self.size, self._version = size, 0
        self._catalog = catalog()
        self._model = next(each["spec"] for each in self._catalog if each["kind"] == MODEL)

    def everything(self) -> dict[str, Iterator[Manifest]]:
        """Kind -> its objects, each made when it is asked for; and all nodes hold all models."""
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
        """The runtime of all services; each edit makes its engines other ones."""
        spec = next(each["spec"] for each in self._catalog if each["metadata"]["name"] == SINGLE[1].runtime)
        engine = spec["engineConfig"]
        runner = engine["runner"] | {"env": [{"name": "EDIT", "value": str(generation)}]}
        edited = spec | {"engineConfig": engine | {"runner": runner}}
        return self._body(SINGLE[1].runtime, {"generation": generation}, spec=edited)

    def _body(self, name: str, metadata: Manifest, **parts: Manifest) -> Manifest:
        self._version += 1000  # a status that is written meanwhile has the next
        given = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(self._version), "generation": 1}
        return {"metadata": given | metadata, **parts}

    def node(self, number: int, said: str = "", *, other: str = "", ready: bool = True) -> Manifest:
        """A node where the labels of all models have the value `said`, if any; that of its own model has `other`."""
        about = {names.model_label(MODEL, "", f"model-{each}"): said for each in range(self.size.models if said else 0)}
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
        """A model for everybody."""
        return self._body(f"model-{number}", {"generation": generation}, spec=self._spec(number))

    def stranger(self, number: int) -> Manifest:
        """A model of a namespace with fifty of them."""
        metadata = {"namespace": f"team-{number // 50}", "creationTimestamp": f"2026-01-01T{number:08}Z"}
        return self._body(f"stranger-{number}", metadata, spec=self._spec(number))

    def service(self, number: int) -> Manifest:
        """A service of a model; models take turns."""
        spec = SINGLE[1].service(number)["spec"] | {"model": {"kind": MODEL, "name": f"model-{number % self.size.models}"}}
        return self._body(f"service-{number}", {"namespace": "bench"}, spec=spec)

    def _spec(self, number: int) -> Manifest:
        return {**self._model, "storage": {"storageUri": f"hf://org/model-{number}", "path": f"/mnt/models/model-{number}"}}

    def record(self, number: int, fetched: int) -> Manifest:
        """The record of a node that holds all models, but its own model, of which `fetched` bytes are there."""
        held = [
            {"kind": MODEL, "name": f"model-{each}", "uri": f"hf://org/model-{each}", "revision": "r", "state": "Ready"}
            | {"bytes": 10**12, "total": 10**12}
            for each in range(self.size.models)
        ]
        held[number % self.size.models] |= {"state": "Updating", "bytes": fetched, "speed": 10**9}
        return self._body(f"node-{number}", {"uid": f"uid-record-{number}"}, status={"models": held})


def encoded(body: Manifest) -> bytes:
    """As it comes over the wire."""
    return json.dumps(body, separators=(",", ":")).encode()
