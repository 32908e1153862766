"""Tests of the meaning of a 404: an object counts as deleted only if an API server says so about this very object."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from ome_operator.kube import errors
from ome_operator.kube.client import Client
from ome_operator.kube.listing import list_all
from tests.support.answers import answers

SET = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "a", "namespace": "team"}}
Ask = Callable[[Client], Awaitable[Any]]
ABOUT_ONE: dict[str, Ask] = {
    "get": lambda client: client.get("StatefulSet", "team", "a"),
    "apply": lambda client: client.apply(SET, "u"),
    "status": lambda client: client.apply(SET, subresource="status"),
    "update": lambda client: client.update(SET),
    "patch": lambda client: client.patch_merge("StatefulSet", "team", "a", "u", {}),
    "delete": lambda client: client.delete("StatefulSet", "team", "a", "u"),
}


def status(kind: str, name: str, **more: str) -> dict[str, Any]:
    """Return the API server's answer about an object that does not exist."""
    details = {"name": name, "group": "apps", "kind": kind}
    message = f'{kind}.apps "{name}" not found'
    whole = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return {**whole, "reason": "NotFound", "details": details, "code": 404, **more}


@asynccontextmanager
async def answering(body: dict[str, Any] | list[Any] | str) -> AsyncIterator[Client]:
    """Yield a client of a server that answers every request with status 404 and this body."""

    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(status=404, text=body) if isinstance(body, str) else web.json_response(body, status=404)

    async with answers(handler) as connection:
        client = Client(connection)
        try:
            yield client
        finally:
            await client.close()


@pytest.mark.parametrize("ask", ABOUT_ONE)
async def test_not_found_is_raised_if_api_status_names_the_object(ask: str) -> None:
    async with answering(status("statefulsets", "a")) as client:
        with pytest.raises(errors.NotFound, match=r'^statefulsets\.apps "a" not found$'):
            await ABOUT_ONE[ask](client)


OTHERS: dict[str, dict[str, Any] | list[Any] | str] = {
    "a path that nobody knows": "404 page not found\n",
    "a proxy": "<html><h1>404 Not Found</h1></html>",
    "a proxy that speaks JSON": {"message": "no Route matched with those values"},
    "a proxy that speaks JSON of another form": {"kind": "Status", "reason": "NotFound", "details": "nowhere"},
    "a list": ["no"],
    "no object is named": {**status("", ""), "details": {}},
    "the namespace": status("namespaces", "team"),
    "a namespace of the object's name": status("namespaces", "a"),
    "what a webhook misses": status("statefulsets", "another"),
    "another reason": status("statefulsets", "a", reason="Gone"),
}


@pytest.mark.parametrize("ask", ABOUT_ONE)
@pytest.mark.parametrize("said", OTHERS)
async def test_any_other_404_is_transient(said: str, ask: str) -> None:
    async with answering(OTHERS[said]) as client:
        with pytest.raises(errors.NotServed) as told:
            await ABOUT_ONE[ask](client)
    assert isinstance(told.value, errors.Transient)


async def test_plain_404_error_names_the_request() -> None:
    async with answering("404 page not found\n") as client:
        with pytest.raises(errors.NotServed, match=r"^GET /api/v1/namespaces/team/pods/a: 404 page not found$"):
            await client.get("Pod", "team", "a")


async def test_uninstalled_kind_has_no_objects() -> None:
    async with answering("404 page not found\n") as client:
        assert await client.served_plurals("sglang.ai/v1") == frozenset()
        assert await list_all(client, ("Serving",), "team") == []
        with pytest.raises(errors.NotServed):
            await client.list_objects("Serving", "team")


async def test_creation_in_an_absent_namespace_is_not_served() -> None:
    async with answering(status("namespaces", "team")) as client:
        with pytest.raises(errors.NotServed, match=r'namespaces\.apps "team" not found'):
            await client.create(SET)
