"""Tests that refusals of a dry run become messages for users."""

from typing import Any

import pytest

from ome_operator import keys
from ome_operator.cli.live.dry_run import find_refused_objects
from ome_operator.core.observed.objects import Ref
from ome_operator.kube.errors import Forbidden, Invalid, KubeError, NotServed, ServerError
from tests.support.fake_api import Call, FakeApi

UNKNOWN = "failed to create typed patch object (team/svc; Kind=InferenceService): .spec.{}: field not declared in schema"
NO_RIGHT = 'inferenceservices.ome.io "svc" is forbidden: User "eve" cannot patch resource "inferenceservices"'

SVC = Ref("InferenceService", "team", "svc")


def service(namespace: str = "team") -> dict[str, Any]:
    metadata = {"name": "svc", "namespace": namespace, "uid": "u", "generation": 3}
    return {"apiVersion": keys.API_VERSION, "kind": "InferenceService", "metadata": metadata, "spec": {}, "status": {}}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ServerError(UNKNOWN.format("modle"), 500),
            "field spec.modle does not exist: `kubectl explain` lists",
        ),
        (Invalid(UNKNOWN.format("modle")), "field spec.modle does not exist: `kubectl explain` lists"),
        (Invalid("spec.engine.minReplicas: at most 1000"), "spec.engine.minReplicas: at most 1000"),
        (Forbidden("exceeded quota"), "exceeded quota"),
        (NotServed('namespaces "team" not found'), "namespace team does not exist: create it, or name another"),
    ],
)
async def test_refused_object_gives_one_sentence(error: KubeError, said: str) -> None:
    ((which, reason),) = (await find_refused_objects(FakeApi({"apply": error}), [service()], ())).items()
    assert which == SVC and reason.startswith(said)


@pytest.mark.parametrize("error", [None, Forbidden(NO_RIGHT), NotServed("the server could not find the requested resource")])
async def test_accepted_or_forbidden_dry_run_reports_nothing(error: KubeError | None) -> None:
    assert await find_refused_objects(FakeApi({"apply": error}), [service()], ()) == {}


async def test_unknown_field_is_refused_with_the_lint_message() -> None:
    body = service()
    body["spec"] = {"engines": {}, "modle": {}, "engine": {}}
    error = ServerError(f"{UNKNOWN.format('engines')}, {UNKNOWN.format('modle')}", 500)
    assert await find_refused_objects(FakeApi({"apply": error}), [body], ()) == {
        SVC: "spec.engines is not a field of spec of InferenceService: write engine; "
        "spec.modle is not a field of spec of InferenceService: write model",
    }


async def test_transient_server_error_is_raised_and_not_reported_as_refusal() -> None:
    with pytest.raises(ServerError):
        await find_refused_objects(FakeApi({"apply": ServerError("etcdserver: request timed out", 500)}), [service()], ())


async def test_object_in_a_new_namespace_is_dry_run_in_another_namespace() -> None:
    """If the files also create the namespace of an object, the dry run of the object is sent to another namespace, because
    its own does not exist yet. A sample, for example, begins with its namespace.
    """

    def answer(call: Call) -> Any:
        there = call.body["metadata"]["namespace"] == "default"
        return Invalid("spec: no") if there else NotServed('namespaces "new" not found')

    api = FakeApi({"apply": answer})
    assert await find_refused_objects(api, [service("new")], {"new"}) == {SVC._replace(namespace="new"): "spec: no"}
    sent = api.bodies("apply")[0]
    assert sent["metadata"] == {"name": "svc", "namespace": "new"} and "status" not in sent, "only fields that users write"
