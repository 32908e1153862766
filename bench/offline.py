"""Computes, by calls of `sync` without a cluster, the objects that the operator would create. A plain client, which measures
the floor, applies them with a ConfigMap as their owner.
"""

from datetime import UTC, datetime
from typing import Any

from bench.scenarios import HOLDS, NAMESPACE, Manifest, Scenario, catalog, name
from ome_operator.api import InferenceService, Invalid, Model, Runtime
from ome_operator.core.observed.objects import Deps, Observed, Ref
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.reconcile.sync import sync


def parse_object(kind: Any, body: Manifest) -> Any:
    """Parse an object of our kinds. Raises an error if it is invalid."""
    parsed = kind.parse(body)
    if isinstance(parsed, Invalid):
        raise ValueError(f"{body['kind']} {body['metadata']['name']}: {parsed.why}")
    return parsed


def dependencies(documents: list[Manifest], holds: str, nodes: int) -> Deps:
    """Return the models and runtimes in `documents`, and `nodes` nodes that hold the model."""
    models = [parse_object(Model, item) for item in documents if item["kind"] == "ClusterBaseModel"]
    runtimes = [parse_object(Runtime, item) for item in documents if item["kind"] == "ClusterServingRuntime"]
    return Deps(
        models={Ref(item.kind, "", item.name): item for item in models},
        runtimes={Ref(item.kind, "", item.name): item for item in runtimes},
        holders={holds: frozenset(f"node-{number}" for number in range(nodes))},
    )


def service(body: Manifest) -> InferenceService:
    """Return a service as if the API server had just stored it."""
    metadata = {**body["metadata"], "uid": f"uid-{body['metadata']['name']}", "generation": 1}
    parsed: InferenceService = parse_object(InferenceService, {**body, "metadata": metadata})
    return parsed


def manifests(plan: Plan) -> list[Manifest]:
    """Return the objects that a plan creates, in its order."""
    return [*(item.manifest for item in (*plan.first, *plan.apply)), *(item.manifest for item in plan.create)]


def objects(scenario: Scenario) -> list[list[Manifest]]:
    """Return for each service the objects that the operator would create in its first pass."""
    deps, now = dependencies(catalog(), HOLDS, scenario.nodes), datetime.now(UTC)
    made = []
    for number in range(scenario.services):
        plan = sync(service(scenario.service(number)), deps, Observed(), now)
        made.append(manifests(plan))
        if not any(item["kind"] == "StatefulSet" for item in made[-1]):
            said = [item["message"] for item in plan.status["conditions"] if item["status"] != "True"]
            raise ValueError(f"the benchmark's own service cannot be rendered: {'; '.join(said)}")
    return made


def owner_config_map(number: int) -> Manifest:
    """Return the ConfigMap that owns the objects of a service."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name(number), "namespace": NAMESPACE}}


def with_owner(manifest: Manifest, owner: Manifest) -> Manifest:
    """Return the object with `owner` as its owner."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [reference]}}
