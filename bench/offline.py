"""The very objects that the operator would create, from `sync` alone, owned by a plain ConfigMap instead."""

from datetime import UTC, datetime
from typing import Any

from bench.scenarios import HOLDS, NAMESPACE, Manifest, Scenario, catalog, name
from ome_operator.api import InferenceService, Invalid, Model, Runtime
from ome_operator.core.observed.objects import Deps, Observed, Ref
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.reconcile.sync import sync


def read(kind: Any, body: Manifest) -> Any:
    """Parse an object of ours; what is wrong with it as an error."""
    parsed = kind.parse(body)
    if isinstance(parsed, Invalid):
        raise ValueError(f"{body['kind']} {body['metadata']['name']}: {parsed.why}")
    return parsed


def dependencies(documents: list[Manifest], holds: str, nodes: int) -> Deps:
    """Models and runtimes, and nodes that hold the model."""
    models = [read(Model, one) for one in documents if one["kind"] == "ClusterBaseModel"]
    runtimes = [read(Runtime, one) for one in documents if one["kind"] == "ClusterServingRuntime"]
    return Deps(
        models={Ref(one.kind, "", one.name): one for one in models},
        runtimes={Ref(one.kind, "", one.name): one for one in runtimes},
        holders={holds: frozenset(f"node-{number}" for number in range(nodes))},
    )


def service(body: Manifest) -> InferenceService:
    """A service as if the API server had just stored it."""
    metadata = {**body["metadata"], "uid": f"uid-{body['metadata']['name']}", "generation": 1}
    parsed: InferenceService = read(InferenceService, {**body, "metadata": metadata})
    return parsed


def manifests(plan: Plan) -> list[Manifest]:
    """What a plan creates, in its order."""
    return [*(one.manifest for one in (*plan.first, *plan.apply)), *(one.manifest for one in plan.create)]


def objects(scenario: Scenario) -> list[list[Manifest]]:
    """Per service what the operator would create at once."""
    deps, now = dependencies(catalog(), HOLDS, scenario.nodes), datetime.now(UTC)
    made = []
    for number in range(scenario.services):
        plan = sync(service(scenario.service(number)), deps, Observed(), now)
        made.append(manifests(plan))
        if not any(one["kind"] == "StatefulSet" for one in made[-1]):
            said = [one["message"] for one in plan.status["conditions"] if one["status"] != "True"]
            raise ValueError(f"the benchmark's own service cannot be rendered: {'; '.join(said)}")
    return made


def root(number: int) -> Manifest:
    """The ConfigMap that owns the objects of one service."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name(number), "namespace": NAMESPACE}}


def owned(manifest: Manifest, owner: Manifest) -> Manifest:
    """The same object with this owner."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [reference]}}
