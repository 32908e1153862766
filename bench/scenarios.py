"""The scenarios of the benchmark: a number of services of one shape, as plain manifests."""

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
"""Label of a node that holds the model."""
MANIFESTS = Path(__file__).parent / "manifests"


@dataclass(frozen=True)
class Scenario:
    """A number of services of one shape."""

    key: str
    services: int
    runtime: str
    groups: int
    group_size: int = 1
    decoders: int = 0
    """Number of decode groups of each service, each with `group_size` pods. If it is not 0, `groups` is the number of
    prefill groups.
    """
    router: bool = True
    most_groups: int = 0
    """maxReplicas of an autoscaler; if it is 0, the maximum is `groups`, so that nothing is scaled."""
    nodes: int = 220

    @property
    def pods_per_service(self) -> int:
        """Number of pods of a service, including the router's."""
        return (self.groups + self.decoders) * self.group_size + self.router

    @property
    def pods(self) -> int:
        """Number of pods of all services."""
        return self.services * self.pods_per_service

    @property
    def title(self) -> str:
        """The number and the shape of the services in words, for the report."""
        shape = f"{self.groups} pods and a router" if self.router else f"one group of {self.group_size} nodes"
        if self.decoders:
            shape = f"{self.groups} + {self.decoders} groups of {self.group_size} nodes and a router"
        return f"{self.services} service{'s' if self.services > 1 else ''} of {shape}"

    def times(self, services: int) -> "Scenario":
        """Return the same shape with another number of services."""
        return replace(self, services=services, key=self.key.replace(str(self.services), str(services)))

    def service(self, number: int) -> Manifest:
        """Return the InferenceService with this number."""
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
    """Return the name of a service."""
    return f"s-{number:03d}"


def catalog_object(name: str) -> Manifest:
    """Return the object of the catalog with this name."""
    (found,) = [item for item in catalog() if item["metadata"]["name"] == name]
    return found


def models(kind: str, namespace: str, names: Iterable[str]) -> Iterator[Manifest]:
    """Yield models like the catalog's, each with its own weights."""
    spec = catalog_object(MODEL)["spec"]
    for number, name in enumerate(names):
        storage = {**spec["storage"], "storageUri": f"{spec['storage']['storageUri']}-{number}"}
        metadata = {"name": name, "namespace": namespace}
        yield {"apiVersion": keys.API_VERSION, "kind": kind, "metadata": metadata, "spec": {**spec, "storage": storage}}


def catalog() -> list[Manifest]:
    """Return the model and the runtimes that every service uses."""
    files = [MANIFESTS / "model.yaml", MANIFESTS / "runtimes.yaml"]
    return [document for file in files for document in yaml.safe_load_all(file.read_text())]


SINGLE = {
    count: Scenario(key=f"{count}-single", services=count, runtime="bench-single", groups=10) for count in (1, 10, 100)
}
PAIRS = Scenario(key="100-pairs", services=100, runtime="bench-pair", groups=1, group_size=2, router=False)
SPLIT = Scenario(key="100-split", services=100, runtime="bench-split", groups=3, group_size=2, decoders=3)
"""Prefill and decode with several groups: the largest plausible number of StatefulSets per service."""
SCALED = Scenario(key="50-scaled", services=50, runtime="bench-single", groups=2, most_groups=4, nodes=30)
"""Services whose autoscalers' statuses the benchmark changes."""
