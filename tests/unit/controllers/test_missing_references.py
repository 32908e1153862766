"""Tests of the statuses of objects that refer to something that does not exist."""

from typing import Any

import pytest

from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.event_handler import EventHandler
from ome_operator.controllers.catalog import LACKING_S, CatalogReconciler
from ome_operator.core.observed.objects import Deps, Ref
from ome_operator.core.resolve.inputs import model_refs, runtime_refs
from tests.support import yamls
from tests.support.fake_api import FakeApi
from tests.unit.controllers import makers

RESYNC = 600.0


def stored(body: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """Return a body as an API server stores it."""
    more = {"uid": body["kind"], "resourceVersion": "1", "generation": 1, **metadata}
    return {**body, "metadata": {**body["metadata"], **more}}


async def status(ref: Ref, *bodies: dict[str, Any]) -> tuple[dict[str, Any], FakeApi, float]:
    """Return the status that is written for an object, the API server, and the seconds until the next reconciliation."""
    api = FakeApi({"apply": makers.storing(bodies[0])})
    handler = EventHandler(ClusterCache(Deps()), lambda *_: None, model_refs, runtime_refs)
    for body in bodies:
        handler.handle_observed(body["kind"], body)
    passes = CatalogReconciler(handler, api, makers.queue(), RESYNC, makers.wall)
    resource = passes._cluster.find_resource(ref)
    assert resource is not None
    again = await passes.reconcile_resource(resource)
    (sent,) = (call.body["status"] for call in api.calls if call.verb == "apply")
    return sent, api, again


def condition(sent: dict[str, Any], type_: str) -> dict[str, Any]:
    return next((one for one in sent["conditions"] if one["type"] == type_), {})


def model(uri: str, namespace: str = "") -> dict[str, Any]:
    body = yamls.model(uri=uri)
    return stored({**body, "kind": "BaseModel"}, namespace=namespace) if namespace else stored(body)


@pytest.mark.parametrize(
    ("uri", "namespace"),
    [("pvc://weights/a", "team"), ("pvc://other:weights", "team"), ("pvc://data:weights", ""), ("pvc://weights", "")],
)
async def test_model_status_does_not_depend_on_claims_in_user_namespaces(uri: str, namespace: str) -> None:
    """A claim is neither read nor reported: a service in a namespace without the claim cannot make the model not ready for
    other namespaces, and the status of a model does not tell which claims exist elsewhere.
    """
    body = model(uri, namespace)
    ref = Ref(body["kind"], namespace, "tiny")
    services = [stored(yamls.service(where, "svc", "rt", "engine"), uid=where) for where in ("prod", "stranger")]
    sent, api, again = await status(ref, body, *services)
    ready = condition(sent, "Ready")
    assert (ready["status"], ready["reason"], sent["state"], sent["summary"]) == ("True", "Claim", "Ready", "claim")
    assert again == RESYNC and [call.verb for call in api.calls] == ["apply"]


async def test_missing_references_give_advice() -> None:
    spec = {"baseModelRef": {"name": "tini"}, "modelType": "LoRA", "storage": {"storageUri": "hf://a/b", "path": "/m"}}
    weights = stored({"apiVersion": yamls.API, "kind": "FineTunedWeight", "metadata": {"name": "lora"}, "spec": spec})
    sent, _, again = await status(Ref("FineTunedWeight", "", "lora"), weights, stored(yamls.model()))
    message = "ClusterBaseModel tini does not exist: did you mean tiny? Otherwise apply it, or fix spec.baseModelRef.name"
    assert condition(sent, "Advice")["message"] == message and again == LACKING_S
    runtime = yamls.runtime("rt", router=False)
    runtime["spec"]["acceleratorRequirements"] = {"acceleratorClasses": ["gpu"]}
    sent, _, _ = await status(Ref("ClusterServingRuntime", "", "rt"), stored(runtime))
    assert "AcceleratorClass gpu does not exist" in condition(sent, "Advice")["message"]
