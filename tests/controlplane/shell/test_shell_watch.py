"""Watching a real API server: what a watch loses, and what must not reach us."""

import asyncio
import signal
from pathlib import Path

from ome_operator.kube.client import Client
from ome_operator.kube.connection import Connection
from ome_operator.local.cluster import SECOND, Cluster
from tests.support.shell import leading, small_role, until


async def test_deletions_during_a_crash_of_the_api_server_are_noticed(
    cluster: Cluster, connection: Connection, client: Client
) -> None:
    """A list says what is there, not what is gone (decisions 1): the audit that follows each relist removes it."""
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


async def test_only_labelled_objects_of_common_kinds_are_watched(connection: Connection, client: Client) -> None:
    stranger = small_role("stranger", "x")
    del stranger["metadata"]["labels"]
    await client.create(stranger)
    await client.create(small_role("labelled", "x"))
    async with leading(connection) as (leader, watcher, _):
        roles = leader.cluster.children["Role"]
        names = {one.name for one in roles}
        assert "labelled" in names, "all kinds are listed when work begins"
        assert "stranger" not in names
        assert len(leader.cluster.nodes) == 2
        assert watcher.events["Role"] == len(names)


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
        assert await client.served("apps/v1"), "the answer 401 made it read the file again"
    finally:
        await client.close()
