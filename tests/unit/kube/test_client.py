"""Tests of paths, errors and warnings of the client. Tests with a real API server are in tests/controlplane."""

import json
from typing import Any

import pytest
import yaml
from aiohttp import web
from hypothesis import example, given
from hypothesis import strategies as st
from multidict import CIMultiDict

from ome_operator.kube import errors
from ome_operator.kube.body import encoded
from ome_operator.kube.client import LONGEST, SOME, Client, warnings
from ome_operator.kube.resources import CHILDREN, RESOURCES, path
from tests.support.answers import answers
from tests.support.deep import MOST, nested


@pytest.mark.parametrize("levels", [900, 2_000, MOST])
async def test_deepest_accepted_object_can_be_read(levels: int) -> None:
    """An object with the deepest nesting that the API server accepts can be read, even if it is part of a list or of a
    response that refuses a request.
    """

    async def deep(request: web.Request) -> web.StreamResponse:
        one, name = nested({"metadata": {"name": "deep"}}, levels), request.path.rpartition("/")[2]
        body = b'{"metadata": {}, "items": [' + one + b"]}" if name == "basemodels" else one
        return web.Response(body=body, content_type="application/json", status=500 if name == "refused" else 200)

    async with answers(deep, "GET", "/{tail:.*}") as connection:
        client = Client(connection)
        try:
            assert (await client.get("BaseModel", "team", "deep"))["metadata"] == {"name": "deep"}
            assert [one["metadata"] for one in await client.list_objects("BaseModel")] == [{"name": "deep"}]
            with pytest.raises(errors.ServerError):
                await client.get("BaseModel", "team", "refused")
        finally:
            await client.close()


def test_resource_paths_are_built() -> None:
    assert path("Pod", "ns", "p") == "/api/v1/namespaces/ns/pods/p"
    assert path("Node", "", "n") == "/api/v1/nodes/n"
    assert path("StatefulSet") == "/apis/apps/v1/statefulsets"
    assert path("InferenceService", "ns", "s", "status").endswith("/namespaces/ns/inferenceservices/s/status")
    assert path("ClusterBaseModel", "ignored", "m") == "/apis/ome.io/v1beta1/clusterbasemodels/m"
    assert set(CHILDREN) <= set(RESOURCES)


@pytest.mark.parametrize("name", [".", "..", "../../secrets/token", "weights/status", "a/", "/", "%2e%2e", "a%2Fb"])
def test_name_cannot_change_the_request_path(name: str) -> None:
    """A name that would change the path of a request is refused. Names of claims, Secrets and ConfigMaps come from pods
    and URIs that users write.
    """
    with pytest.raises(errors.Invalid, match="cannot be a name"):
        path("PersistentVolumeClaim", "team", name)
    with pytest.raises(errors.Invalid, match="cannot be a name"):
        path("PersistentVolumeClaim", name, "weights")


@pytest.mark.parametrize("name", ["weights", "a.b-c", "system:node", "router-0:29001"])
async def test_special_characters_in_names_are_escaped(name: str) -> None:
    async def named(request: web.Request) -> web.StreamResponse:
        return web.json_response({"metadata": {"name": request.match_info["name"]}})

    async with answers(named, "GET", "/api/v1/namespaces/team/pods/{name}") as connection:
        client = Client(connection)
        try:
            assert (await client.get_metadata("Pod", "team", name)) == {"name": name}
        finally:
            await client.close()


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        (400, {}, errors.Invalid),
        (401, {}, errors.Unauthorized),
        (403, {}, errors.Forbidden),
        (404, {}, errors.NotServed),
        (409, {"reason": "Conflict"}, errors.Conflict),
        (409, {"reason": "AlreadyExists"}, errors.AlreadyExists),
        (422, {"reason": "Invalid"}, errors.Invalid),
        (422, {"details": {"causes": [{"field": "metadata.uid"}]}}, errors.Conflict),
        (429, {}, errors.TooMany),
        (500, {}, errors.ServerError),
        (503, "proxy says no", errors.ServerError),
        (200, "not json", errors.Invalid),
    ],
)
def test_api_status_becomes_exception_class(code: int, status: object, kind: type[errors.KubeError]) -> None:
    assert type(errors.from_response(code, status)) is kind


def test_message_of_the_api_server_is_kept() -> None:
    assert str(errors.from_response(422, {"message": "spec.x: too long"})) == "spec.x: too long"
    assert str(errors.from_response(503, "upstream")) == "upstream"
    assert str(errors.from_response(504, {})) == "HTTP 504"
    assert errors.from_response(429, {}, "7").retry_after == 7.0
    assert errors.from_response(429, {}).retry_after == 1.0


def test_warning_headers_are_parsed() -> None:
    headers = CIMultiDict(
        [("Warning", '299 - "unknown field \\"spec.x\\""'), ("Warning", '299 - "a", 299 - "b"'), ("Warning", "nonsense")]
    )
    assert warnings(headers) == ('unknown field "spec.x"', "a", "b")


@given(st.text(st.characters(exclude_categories=("Cs",))))
@example("\U0001f600 \x00\x1b\x7f\x85\u2028\ufeff\uffff \\ud83d")
def test_request_body_is_equal_as_json_and_yaml(text: str) -> None:
    """The body of a request has the same meaning as JSON and as YAML. The API server parses the body of a server-side apply
    as YAML.
    """
    sent = encoded({"text": text})
    assert json.loads(sent) == yaml.safe_load(sent) == {"text": text}
    assert b"\\ud8" not in sent.replace(b"\\\\", b"")


def test_lone_surrogate_is_replaced_in_the_request() -> None:
    assert json.loads(encoded(["a\ud83d"])) == ["a\ufffd"]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_number_without_json_form_is_not_sent_as_null(number: float) -> None:
    """A body with NaN or infinity is not sent as null. The API server refuses the body with an error, while a null would
    silently remove the field.
    """
    assert b"null" not in encoded({"status": {"load": number}})


async def test_observe_mode_client_sends_only_status_writes() -> None:
    """A client in observe mode sends only writes of statuses, whatever its rights and its caller are."""
    came: list[tuple[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        came.append((request.method, request.path.rpartition("/")[2]))
        return web.json_response({})

    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns"}}
    async with answers(answer) as connection:
        client = Client(connection, only_statuses=True)
        try:
            for write in (
                client.apply(pod),
                client.apply(pod, dry_run=True),
                client.create(pod),
                client.update(pod),
                client.patch_merge("Pod", "ns", "p", "uid", {}),
                client.delete("Pod", "ns", "p", "uid"),
            ):
                with pytest.raises(errors.Forbidden, match="observe mode"):
                    await write
            assert came == []
            await client.apply(pod, subresource="status")
            await client.get("Pod", "ns", "p")
        finally:
            await client.close()
    assert came == [("PATCH", "status"), ("GET", "p")]


async def test_number_of_tenant_objects_read_is_limited() -> None:
    """Of objects that tenants create, only as many are read as fit into memory. A tenant may create any number of Events and
    budgets, each as large as the API server accepts.
    """
    asked: list[dict[str, str]] = []
    size = 100

    async def answer(request: web.Request) -> web.Response:
        asked.append(dict(request.query))
        items = [{"message": "x" * size}] * SOME
        return web.json_response({"items": items, "metadata": {"continue": "more"}})

    async with answers(answer) as connection:
        client = Client(connection)
        try:
            assert len(await client.list_some("Event", "ns", field_selector="reason=FailedCreate")) == SOME
            assert asked == [{"limit": str(SOME), "fieldSelector": "reason=FailedCreate"}], "one page of an endless list"
            size = LONGEST // SOME
            with pytest.raises(errors.KubeError, match="longer than 8 MiB"):
                await client.list_some("Event", "ns")
        finally:
            await client.close()


async def test_page_of_large_objects_is_requested_again_with_a_smaller_limit() -> None:
    """If a page of a list is too large, it is requested again with fewer objects. A page is decoded as a whole, and 200
    objects may have 300 MB.
    """
    limits: list[str] = []
    names = [f"n{number}" for number in range(30)]

    async def answer(request: web.Request) -> web.Response:
        limits.append(request.query["limit"])
        first = int(request.query.get("continue") or 0)
        last = first + int(request.query["limit"])
        items = [{"metadata": {"uid": name, "labels": {"x": "y" * 1_500_000}}} for name in names[first:last]]
        return web.json_response({"items": items, "metadata": {"continue": str(last) if last < len(names) else ""}})

    async with answers(answer) as connection:
        client = Client(connection)
        try:
            assert await client.list_uids("ServiceAccount") == set(names)
            assert limits == ["200", "50", "12", "12", "12"], "afterwards, no page is larger"
        finally:
            await client.close()
