"""What is deployed: so many services of one shape, as plain manifests."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from ome_operator import keys

Manifest = dict[str, Any]
NAMESPACE = "bench"
MODEL = "bench-model"
HOLDS = f"{keys.MODEL_LABEL_PREFIX}clusterbasemodel.{MODEL}"
"""The label of a node that holds the model."""
MANIFESTS = Path(__file__).parent / "manifests"


@dataclass(frozen=True)
class Scenario:
    """So many services of one shape."""

    key: str
    services: int
    runtime: str
    groups: int
    group_size: int = 1
    decoders: int = 0
    """Groups of the decoder, of the same size; the others are prefill then."""
    router: bool = True
    most_groups: int = 0
    """maxReplicas of an autoscaler; 0: as many as `groups`, so that nothing scales."""
    nodes: int = 220

    @property
    def pods_per_service(self) -> int:
        """All of them, the router's too."""
        return (self.groups + self.decoders) * self.group_size + self.router

    @property
    def pods(self) -> int:
        """Of all services."""
        return self.services * self.pods_per_service

    @property
    def title(self) -> str:
        """For people."""
        shape = f"{self.groups} pods and a router" if self.router else f"one group of {self.group_size} nodes"
        if self.decoders:
            shape = f"{self.groups} + {self.decoders} groups of {self.group_size} nodes and a router"
        return f"{self.services} service{'s' if self.services > 1 else ''} of {shape}"

    def times(self, services: int) -> "Scenario":
        """The same shape another number of times."""
        return replace(self, services=services, key=self.key.replace(str(self.services), str(services)))

    def service(self, number: int) -> Manifest:
        """One InferenceService."""
        bounds: Manifest = {"minReplicas": self.groups, "maxReplicas": self.most_groups or self.groups}
        if self.most_groups > self.groups:
            bounds["scaleMetric"] = "cpu"
        spec: Manifest = {
            "model": {"kind": "ClusterBaseModel", "name": MODEL},
            "runtime": {"kind": "ClusterServingRuntime", "name": self.runtime},
            "engine": bounds,
        }
        if self.decoders:
            spec["decoder"] = {"minReplicas": self.decoders, "maxReplicas": self.decoders}
        if self.router:
            spec["router"] = {"minReplicas": 1, "maxReplicas": 1}
        metadata = {"name": name(number), "namespace": NAMESPACE}
        return {"apiVersion": keys.API_VERSION, "kind": "InferenceService", "metadata": metadata, "spec": spec}


def name(number: int) -> str:
    """Of a service."""
    return f"s-{number:03d}"


def known(name: str) -> Manifest:
    """The object of the catalog with this name."""
    (found,) = [item for item in catalog() if item["metadata"]["name"] == name]
    return found


def models(kind: str, namespace: str, names: Iterable[str]) -> Iterator[Manifest]:
    """Models like the catalog's, each with weights of its own."""
    spec = known(MODEL)["spec"]
    for number, name in enumerate(names):
        storage = {**spec["storage"], "storageUri": f"{spec['storage']['storageUri']}-{number}"}
        metadata = {"name": name, "namespace": namespace}
        yield {"apiVersion": keys.API_VERSION, "kind": kind, "metadata": metadata, "spec": {**spec, "storage": storage}}


def catalog() -> list[Manifest]:
    """The model and the runtimes that every service uses."""
    files = [MANIFESTS / "model.yaml", MANIFESTS / "runtimes.yaml"]
    return [document for file in files for document in yaml.safe_load_all(file.read_text())]


SINGLE = {
    count: Scenario(key=f"{count}-single", services=count, runtime="bench-single", groups=10) for count in (1, 10, 100)
}
PAIRS = Scenario(key="100-pairs", services=100, runtime="bench-pair", groups=1, group_size=2, router=False)
SPLIT = Scenario(key="100-split", services=100, runtime="bench-split", groups=3, group_size=2, decoders=3)
"""Prefill and decode of several groups: as many StatefulSets as a service may well have."""
SCALED = Scenario(key="50-scaled", services=50, runtime="bench-single", groups=2, most_groups=4, nodes=30)
"""Services whose autoscalers' statuses the benchmark moves."""
