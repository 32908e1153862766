"""Tests of watches of a real API server: which events a watch misses, and which objects must not be watched."""

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ome_local.cluster import Cluster
from ome_local.servers import SECOND
from ome_operator import keys
from ome_operator.kube.client import Client
from ome_operator.kube.connection import Connection
from ome_operator.watch.informer import Informer
from ome_operator.watch.sink import WatchedKind
from tests.support.manager import leading, small_role, until


async def test_objects_deleted_while_the_api_server_is_down_are_removed_from_memory(
    cluster: Cluster, connection: Connection, client: Client
) -> None:
    """Deletions while the API server does not run are noticed afterwards. A list shows which objects exist, and not which
    are gone (decisions 1), so an audit after each list removes the missing objects from memory.
    """
    doomed = await client.create(small_role("doomed", "ghost"))
    kept = await client.create(small_role("kept", "ghost"))
    other = Client(await Connection.open(await asyncio.to_thread(cluster.extra_apiserver)))
    try:
        async with leading(connection) as (leader, _, _counted):
            roles = leader.cluster.children["Role"]
            assert {doomed["metadata"]["uid"], kept["metadata"]["uid"]} <= roles.uids()
            await asyncio.to_thread(cluster.stop, "apiserver", signal.SIGKILL)
            await other.delete("Role", "default", "doomed", doomed["metadata"]["uid"])
            born = await other.create(small_role("born", "ghost"))
            await asyncio.to_thread(cluster.start, "apiserver")
            await until("the new one is seen", lambda: born["metadata"]["uid"] in roles.uids(), 30)
            await until("the ghost is gone", lambda: doomed["metadata"]["uid"] not in roles.uids(), 20)
            assert kept["metadata"]["uid"] in roles.uids()
    finally:
        await other.close()
        await asyncio.to_thread(cluster.stop, SECOND)


class Deleting:
    """A sink that, while the first page of a list is reported, deletes an object of that page and an object of a later
    page.
    """

    def __init__(self, cluster: Cluster, *doomed: str) -> None:
        self._cluster, self._doomed = cluster, doomed
        self.told: list[str] = []

    def handle_object(self, kind: str, body: Mapping[str, Any]) -> None:
        if not self.told:
            self._cluster.kubectl("delete", kind, "-n", "default", *self._doomed)
        self.told.append(f"seen {body['metadata']['name']}")

    def handle_deletion(self, kind: str, body: Mapping[str, Any]) -> None:
        self.told.append(f"deleted {body['metadata']['name']}")

    def handle_relist(self, kind: str) -> None:
        self.told.append("relisted")


async def test_object_deleted_between_two_list_pages_is_reported(
    cluster: Cluster, connection: Connection, client: Client
) -> None:
    """An object that is deleted while a list is read page by page is reported as deleted. All pages show the state at the
    moment of the first page, and the watch begins at that moment, so its events contain the deletion.
    """
    for name in ("page-a", "page-b", "page-c"):
        await client.create(small_role(name, "pages"))
    roles = WatchedKind("Role", "rbac.authorization.k8s.io", "v1", "roles", f"{keys.SERVICE}=pages")
    sink, session = Deleting(cluster, "page-a", "page-c"), connection.session(limit=0, agent="test")
    informer = Informer([roles], sink, session=session, server=connection.server, server_timeout=600, page=1)
    watching = asyncio.create_task(informer.run())
    try:
        await until("both deletions are told", lambda: len(sink.told) == 5)
        assert sink.told[:3] == ["seen page-a", "seen page-b", "seen page-c"]
        assert sorted(sink.told[3:]) == ["deleted page-a", "deleted page-c"]
    finally:
        watching.cancel()
        await session.close()


async def test_only_labelled_objects_of_common_kinds_are_watched(connection: Connection, client: Client) -> None:
    stranger = small_role("stranger", "x")
    del stranger["metadata"]["labels"]
    await client.create(stranger)
    await client.create(small_role("labelled", "x"))
    async with leading(connection) as (leader, informer, _):
        roles = leader.cluster.children["Role"]
        names = {one.name for one in roles}
        assert "labelled" in names, "all kinds are listed when work begins"
        assert "stranger" not in names
        assert len(leader.cluster.nodes) == 2
        assert informer.events["Role"] == len(names)


async def test_a_token_that_is_refused_is_read_again(cluster: Cluster, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    kubeconfig = tmp_path / "kubeconfig"
    authority = cluster.kubectl(
        "config", "view", "--raw", "--minify", "-o", "jsonpath={.clusters[0].cluster.certificate-authority-data}"
    )
    kubeconfig.write_text(f"""
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "{cluster.server}", certificate-authority-data: "{authority}"}}}}]
users: [{{name: u, user: {{tokenFile: {token}}}}}]
""")
    client = Client(await Connection.open(kubeconfig))
    try:
        fresh = await asyncio.to_thread(cluster.kubectl, "create", "token", "default", "-n", "default")
        token.write_text(fresh + "\n")
        assert await client.served_plurals("apps/v1"), "after the answer 401 the client read the token file again"
    finally:
        await client.close()
