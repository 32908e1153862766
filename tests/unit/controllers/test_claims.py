"""Tests of the statuses of objects that refer to something that does not exist."""

from typing import Any

import pytest

from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.event_handler import EventHandler
from ome_operator.controllers.catalog import LACKING_S, CatalogReconciler
from ome_operator.core.observed.objects import Deps, Ref
from ome_operator.core.resolve.inputs import model_refs, runtime_refs
from ome_operator.kube.errors import Forbidden, NotFound
from tests.support import yamls
from tests.support.fake_api import FakeApi
from tests.unit.controllers import makers

GONE = NotFound("persistentvolumeclaims weights not found")
META = {"metadata": {"name": "weights"}}


def stored(body: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """Return a body as an API server stores it."""
    more = {"uid": body["kind"], "resourceVersion": "1", "generation": 1, **metadata}
    return {**body, "metadata": {**body["metadata"], **more}}


async def status(ref: Ref, claim: Any, *bodies: dict[str, Any]) -> tuple[dict[str, Any], FakeApi, float]:
    """Return the status that is written for an object, the API server, and the seconds until the next reconciliation.
    `claim` is the answer to a read of a claim.
    """
    api = FakeApi({"get_metadata": claim, "apply": makers.storing(bodies[0])})
    handler = EventHandler(ClusterCache(Deps()), lambda *_: None, model_refs, runtime_refs)
    for body in bodies:
        handler.seen(body["kind"], body)
    passes = CatalogReconciler(handler, api, makers.queue(), 600.0, makers.wall)
    resource = passes._cluster.find(ref)
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
    ("uri", "namespace", "place"),
    [("pvc://weights/a", "team", "team"), ("pvc://team:weights", "team", "team"), ("pvc://data:weights", "", "data"),
     ("pvc://weights", "", "users")],
)  # fmt: skip
async def test_a_model_whose_claim_does_not_exist_is_not_ready(uri: str, namespace: str, place: str) -> None:
    body = model(uri, namespace)
    ref = Ref(body["kind"], namespace, "tiny")
    service = stored(yamls.service("users", "svc", "rt", "engine"))
    sent, api, again = await status(ref, GONE, body, service)
    ready = condition(sent, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ClaimNotFound")
    assert ready["message"] == (
        f"PersistentVolumeClaim weights does not exist in namespace {place}: create it, or fix spec.storage.storageUri"
    )
    assert (sent["summary"], sent["state"], again) == ("no claim", "Creating", LACKING_S)
    assert [(call.namespace, call.name) for call in api.calls if call.verb == "get_metadata"] != []
    sent, _, again = await status(ref, META, body, service)
    assert (condition(sent, "Ready")["reason"], sent["summary"], sent["state"]) == ("Claim", "claim", "Ready")
    assert again == 600.0


@pytest.mark.parametrize("answer", [Forbidden("no right"), META])
async def test_a_claim_that_may_exist_is_taken_for_existing(answer: Any) -> None:
    sent, _, _ = await status(Ref("BaseModel", "team", "tiny"), answer, model("pvc://weights", "team"))
    assert condition(sent, "Ready")["status"] == "True"


@pytest.mark.parametrize(("uri", "namespace"), [("pvc://other:weights", "team"), ("pvc://weights", ""), ("hf://a/b", "")])
async def test_no_claim_is_read_of_another_namespace_or_of_none(uri: str, namespace: str) -> None:
    """A tenant cannot find out by a BaseModel which claims exist in other namespaces. The claim of a cluster-wide model that
    no service uses is in no namespace.
    """
    body = model(uri, namespace)
    sent, api, _ = await status(Ref(body["kind"], namespace, "tiny"), GONE, body)
    assert condition(sent, "Ready")["reason"] != "ClaimNotFound" and "get_metadata" not in {call.verb for call in api.calls}


async def test_references_to_nothing_are_advice() -> None:
    spec = {"baseModelRef": {"name": "tini"}, "modelType": "LoRA", "storage": {"storageUri": "hf://a/b", "path": "/m"}}
    weights = stored({"apiVersion": yamls.API, "kind": "FineTunedWeight", "metadata": {"name": "lora"}, "spec": spec})
    sent, _, again = await status(Ref("FineTunedWeight", "", "lora"), META, weights, stored(yamls.model()))
    message = "ClusterBaseModel tini does not exist: did you mean tiny? Otherwise apply it, or fix spec.baseModelRef.name"
    assert condition(sent, "Advice")["message"] == message and again == LACKING_S
    runtime = yamls.runtime("rt", router=False)
    runtime["spec"]["acceleratorRequirements"] = {"acceleratorClasses": ["gpu"]}
    sent, _, _ = await status(Ref("ClusterServingRuntime", "", "rt"), META, stored(runtime))
    assert "AcceleratorClass gpu does not exist" in condition(sent, "Advice")["message"]
