"""Tests of deeply nested objects of 12 kB, which once ended the operator and all agents permanently (S4 of the review): they
are read, and refused.

tests/controlplane/operator/test_deep.py sends such objects to a real API server. The tests here use the code paths of each
process.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web

from ome_operator.agent.loop import Agent
from ome_operator.agent.work import AgentSettings
from ome_operator.api import Invalid
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.core.observed.objects import Deps, Observed, Ref
from ome_operator.describe.tree import tree
from ome_operator.kube.client import Client
from ome_operator.kube.resources import RESOURCES
from ome_operator.watch.handlers import DepthLimitedContent
from ome_operator.watch.informer import Informer
from ome_operator.watch.sink import WatchedKind
from tests.support import yamls
from tests.support.answers import answers
from tests.support.deep import HERE, filled
from tests.support.fake_api import FakeApi

LEVELS = [2_000, 9_000, 10_000]
STORAGE = {"storageUri": "local:///mnt/models/x", "path": "/mnt/models/x"}
DEEP = {
    "InferenceService": {"model": {"name": "m"}, "engine": {"runner": {"name": "x", "image": "x", "z": HERE}}},
    "BaseModel": {"storage": STORAGE, "modelConfiguration": HERE},
}
"""The objects of the review, and where their maps are."""


def body(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "team-a", "uid": f"uid-{name}", "resourceVersion": "7"}
    return {"apiVersion": yamls.API, "kind": kind, "metadata": metadata, "spec": spec}


class Content:
    """The content of an API server's response."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    async def read(self, n: int = -1) -> bytes:
        return self._text

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self._text


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("kind", DEEP)
async def test_operator_refuses_a_deeply_nested_object_and_continues(kind: str, levels: int) -> None:
    """The operator refuses a deeply nested object and continues. The object arrives through kopf, which decodes lists and
    lines with Python's own decoder.
    """
    deep = filled(json.dumps(body(kind, "deep", DEEP[kind])).encode(), levels)
    plain = json.dumps(body(kind, "plain", {})).encode()
    lines = b"".join(b'{"type": "ADDED", "object": ' + text + b"}\n" for text in (deep, plain))
    content = DepthLimitedContent(cast(aiohttp.StreamReader, Content(lines)))
    told = [json.loads(line)["object"] async for line in content.iter_chunked(1024)]
    whole = DepthLimitedContent(cast(aiohttp.StreamReader, Content(b'{"items": [' + deep + b"]}")))
    told += json.loads(await whole.read())["items"]
    cluster = ClusterCache(Deps())
    for item in told:
        cluster.store_observed(kind, item)
    assert [item["metadata"]["name"] for item in told] == ["deep", "plain", "deep"]
    found, other = (cluster.find_resource(Ref(kind, "team-a", name)) for name in ("deep", "plain"))
    assert found is not None and isinstance(found.parsed, Invalid) and "nested more than 50 levels deep" in found.parsed.why
    assert other is not None, "everything else continues"


async def test_large_objects_of_tenants_are_not_decoded_by_kopf() -> None:
    """Large objects of tenants are not decoded by kopf. The objects of a list stay in kopf for some seconds, so a hundred
    objects of 1 MB would take 1 GiB (finding U13).
    """
    large = {"engine": {"runner": {"args": ["word"] * 100_000}}}
    text = json.dumps(body("InferenceService", "large", large)).encode()
    page = DepthLimitedContent(cast(aiohttp.StreamReader, Content(b'{"items": [' + text + b"]}")))
    watch = DepthLimitedContent(cast(aiohttp.StreamReader, Content(b'{"type": "ADDED", "object": ' + text + b"}\n")))
    told = [await page.read(), *[line async for line in watch.iter_chunked(1024)]]
    assert all(len(each) < 1000 and b'"large"' in each for each in told)
    cluster = ClusterCache(Deps())
    cluster.store_observed("InferenceService", json.loads(told[1])["object"])
    found = cluster.find_resource(Ref("InferenceService", "team-a", "large"))
    assert found is not None and isinstance(found.parsed, Invalid) and "move large values" in found.parsed.why


@pytest.mark.parametrize("levels", LEVELS)
async def test_agent_continues_after_a_deeply_nested_model(levels: int) -> None:
    """An agent that receives a deeply nested model through its own watch continues with the other models. The directories
    that such a model refers to are unknown, so no directory is offered for removal.
    """
    deep = filled(json.dumps(body("BaseModel", "deep", DEEP["BaseModel"])).encode(), levels)
    items = b'{"metadata": {"resourceVersion": "9"}, "items": [' + deep + b"]}"
    line = json.dumps({"type": "ADDED", "object": body("BaseModel", "good", {"storage": STORAGE})}).encode()

    async def serve(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.Response(body=items, content_type="application/json")
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"type": "MODIFIED", "object": ' + deep + b"}\n" + line + b"\n")
        await asyncio.Future()
        return response

    agent = Agent(AgentSettings(node="n"), FakeApi({}))
    resource = RESOURCES["BaseModel"]
    kind = WatchedKind("BaseModel", resource.group, resource.version, resource.plural)
    async with answers(serve) as connection, connection.session(limit=0, agent="") as session:
        informer = Informer([kind], agent, session=session, server=connection.server, server_timeout=60)
        watching = asyncio.create_task(informer.run())
        try:
            async with asyncio.timeout(60):
                while "uid-good" not in agent._models:
                    assert not watching.done()
                    await asyncio.sleep(0.01)
        finally:
            watching.cancel()
    assert agent._unparsed == {"uid-deep": "BaseModel"} and agent._models.keys() == {"uid-good"}


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("kind", DEEP)
async def test_deeply_nested_object_is_cached_as_invalid(kind: str, levels: int) -> None:
    deep = filled(json.dumps(body(kind, "deep", DEEP[kind])).encode(), levels)

    async def serve(_: web.Request) -> web.StreamResponse:
        return web.Response(body=b'{"metadata": {}, "items": [' + deep + b"]}", content_type="application/json")

    async with answers(serve, "GET") as connection:
        client = Client(connection)
        try:
            (found,) = await client.list_objects(kind, "team-a")
        finally:
            await client.close()
    if kind == "InferenceService":
        assert "deep" in str(tree(found, Observed()))
    cluster = ClusterCache(Deps())
    cluster.store_observed(kind, found)
    kept = cluster.find_resource(Ref(kind, "team-a", "deep"))
    assert kept is not None and isinstance(kept.parsed, Invalid)
