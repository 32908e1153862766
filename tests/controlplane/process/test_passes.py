"""Tests of reconciliations by the controllers with a real API server. Each test supplies the pure function that decides what
to write.
"""

import asyncio
from datetime import datetime
from typing import Any

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.core.observed import managed_fields
from ome_operator.core.observed.objects import Deps, Observed
from ome_operator.core.reconcile.plan import Apply, Create, Delete, Event, Guard, Patch, Plan
from ome_operator.kube.client import Client
from ome_operator.kube.connection import Connection
from tests.support.manager import Counted, leading, service, small_role, status, until


def wanted(manifest: dict[str, Any], seen: Observed) -> tuple[Apply, ...]:
    """Return the write that `sync` would plan for a manifest, or an empty tuple if the object on the cluster already has the
    contents of the manifest.
    """
    found = seen.children.get((manifest["kind"], manifest["metadata"]["name"]))
    hash_ = managed_fields.digest(manifest)
    if found is not None and found.hash == hash_ and found.owned in (hash_, seen.accepted.get(found.uid)):
        return ()
    metadata = {**manifest["metadata"], "annotations": {keys.HASH: hash_}}
    return (Apply({**manifest, "metadata": metadata}, found.uid if found else ""),)


def one_child(one: InferenceService, deps: Deps, seen: Observed, now: datetime) -> Plan:
    """Return a plan with one Role."""
    return child(small_role(f"{one.name}-child", one.name, one.uid), seen)


def small_account(role: dict[str, Any]) -> dict[str, Any]:
    """Return a ServiceAccount with the metadata of this Role."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": role["metadata"]}


def one_account(one: InferenceService, deps: Deps, seen: Observed, now: datetime) -> Plan:
    """Return a plan with one ServiceAccount."""
    return child(small_account(small_role(f"{one.name}-child", one.name, one.uid)), seen)


def child(body: dict[str, Any], seen: Observed) -> Plan:
    """Return a plan with this object, and with a status that says whether the object exists."""
    key = body["kind"], body["metadata"]["name"]
    apply, refusal = wanted(body, seen), seen.refusals.get(key)
    if refusal is not None:
        return Plan(apply=apply, status=status("False", refusal.reason, refusal.message))
    done = key in seen.children
    event = (Event("Normal", "Done", "it is there"),) if done else ()
    return Plan(apply=apply, status=status(str(done), "Done" if done else "Working"), events=event)


async def condition(client: Client, name: str) -> tuple[str, str]:
    body = await client.get("InferenceService", "default", name)
    one = next(iter((body.get("status") or {}).get("conditions") or ()), {})
    return one.get("reason", ""), one.get("message", "")


async def reason_is(client: Client, name: str, reason: str, seconds: float = 15) -> str:
    """Wait until the condition has this reason, and return its message."""
    found = ("", "")
    async with asyncio.timeout(seconds):
        while (found := await condition(client, name))[0] != reason:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return found[1]


async def quiet(counted: Counted, seconds: float) -> list[tuple[str, str, int]]:
    """Return the writes of a period of `seconds`. It begins after a second, when the watch event of the last status has
    arrived.
    """
    await asyncio.sleep(1.0)
    before = len(counted.requests)
    await asyncio.sleep(seconds)
    return [one for one in counted.requests[before:] if one[0] not in ("get", "list")]


async def test_child_is_created_and_repaired_and_then_nothing_is_written(connection: Connection, client: Client) -> None:
    async with leading(connection, one_child) as (_, _watcher, counted):
        made = await client.create(service())
        name = made["metadata"]["name"]
        await reason_is(client, name, "Done")
        mine = [one for one in counted.writes() if one[0] == "patch"]
        assert [kind for _, kind, _ in mine].count("Role") == 1
        assert [kind for _, kind, _ in mine].count("InferenceService") <= 2
        assert await quiet(counted, 1.5) == []
        child = await client.get("Role", "default", f"{name}-child")
        await client.update({**child, "rules": []}, "stranger")
        await until("the repair", lambda: [one[1] for one in counted.writes()].count("Role") == 2)
        assert (await client.get("Role", "default", f"{name}-child"))["rules"][0]["verbs"] == ["get"]
        await client.delete("Role", "default", f"{name}-child", child["metadata"]["uid"])
        await until("a new one", lambda: [one[1] for one in counted.writes()].count("Role") == 3)
        await asyncio.sleep(1.0)
    async with leading(connection, one_child) as (_, _watcher, counted):
        assert await quiet(counted, 2.0) == [], "a restart writes nothing"


async def test_taken_name_is_reported_and_used_when_free(connection: Connection, client: Client) -> None:
    one = service()
    name = one["metadata"]["name"]
    theirs = small_account(small_role(f"{name}-child", "other"))
    theirs["metadata"]["labels"] = {"of": "a-stranger"}
    stranger = await client.create(theirs, "stranger")
    async with leading(connection, one_account) as (_, _watcher, counted):
        while await quiet(counted, 1.0):  # the services of other tests still get their objects
            pass
        before = len(counted.writes())
        await client.create(one)
        message = await reason_is(client, name, "NameTaken")
        assert "last written by stranger" in message
        assert [one[1] for one in counted.writes()[before:]].count("InferenceService") == 1, "the first status reports it"
        live = await client.get("ServiceAccount", "default", f"{name}-child")
        assert live["metadata"]["resourceVersion"] == stranger["metadata"]["resourceVersion"]
        await client.delete("ServiceAccount", "default", f"{name}-child", stranger["metadata"]["uid"])
        await reason_is(client, name, "Done", 12)


async def test_exception_for_one_service_is_reported_and_stops_no_other(connection: Connection, client: Client) -> None:
    bad = service()

    def sync(one: InferenceService, deps: Deps, seen: Observed, now: datetime) -> Plan:
        if one.name == bad["metadata"]["name"]:
            raise KeyError("a bug")
        return one_child(one, deps, seen, now)

    async with leading(connection, sync) as (_, _watcher, counted):
        await client.create(bad)
        good = await client.create(service())
        assert "KeyError" in await reason_is(client, bad["metadata"]["name"], "InternalError")
        await reason_is(client, good["metadata"]["name"], "Done")
        assert await quiet(counted, 2.0) == []


async def test_guard_is_read_live_and_prevents_the_write(connection: Connection, client: Client) -> None:
    one = service()
    name = one["metadata"]["name"]
    labels = {keys.SERVICE: name, keys.COMPONENT: "engine", keys.REVISION: "r"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{name}-engine-r-0-0", "namespace": "default", "labels": {**labels, "guard": name}},
        "spec": {"containers": [{"name": "c", "image": "i:1"}], "nodeName": "nowhere"},
    }
    blocker = await client.create(pod)
    first = await client.create(small_role(f"{name}-child", name))

    def sync(one: InferenceService, deps: Deps, seen: Observed, now: datetime) -> Plan:
        found = seen.children.get(("Role", f"{name}-child"))
        if found is None or one.name != name:
            return Plan(status=status("True", "Gone"))
        guard = Guard(f"guard={name}")
        return Plan(delete=(Delete("Role", found.name, found.uid, guard=guard),), status=status("False", "Blocked"))

    async with leading(connection, sync) as (_, _watcher, counted):
        await client.create(one)
        await reason_is(client, name, "Blocked")
        await asyncio.sleep(1.5)
        assert ("delete", "Role", 200) not in counted.requests
        assert (await client.get("Role", "default", f"{name}-child"))["metadata"]["uid"] == first["metadata"]["uid"]
        await client.delete("Pod", "default", pod["metadata"]["name"], blocker["metadata"]["uid"], 0)
        await reason_is(client, name, "Gone", 8)


async def test_reason_for_never_created_pods_is_found_in_events(connection: Connection, client: Client) -> None:
    one = service()
    name = one["metadata"]["name"]

    def sync(one: InferenceService, deps: Deps, seen: Observed, now: datetime) -> Plan:
        if one.name != name:
            return Plan(status=dict(one.status))
        key = ("StatefulSet", name)
        body = small_role(name, name, one.uid)
        del body["rules"]
        labels = body["metadata"]["labels"]
        template = {
            "metadata": {"labels": labels},
            "spec": {"serviceAccountName": "nobody", "containers": [{"name": "c", "image": "i:1"}]},
        }
        body |= {"apiVersion": "apps/v1", "kind": "StatefulSet"}
        body["spec"] = {
            "replicas": 1,
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": template,
        }
        why = seen.failures.get(key, "")
        missing = (key,) if key in seen.children and not seen.pods else ()
        said = status("False", "FailedCreate" if why else "Working", why)
        return Plan(apply=wanted(body, seen), status=said, watch_failures=missing)

    async with leading(connection, sync):
        await client.create(one)
        assert 'serviceaccount "nobody" not found' in await reason_is(client, name, "FailedCreate", 20)


async def test_role_scale_is_created_once_and_its_replicas_are_not_overwritten(
    connection: Connection, client: Client
) -> None:
    one = service()
    name = one["metadata"]["name"]

    def sync(one: InferenceService, deps: Deps, seen: Observed, now: datetime) -> Plan:
        if one.name != name:
            return Plan(status=dict(one.status))
        scale = small_role(name, name, one.uid)
        del scale["rules"]
        scale |= {"apiVersion": keys.API_VERSION, "kind": "RoleScale", "spec": {"replicas": 2}}
        found = seen.children.get(("RoleScale", name))
        return Plan(create=() if found else (Create(scale),), status=status("True", f"N{found.replicas if found else 0}"))

    async with leading(connection, sync) as (_, _watcher, counted):
        await client.create(one)
        await reason_is(client, name, "N2")
        live = await client.get("RoleScale", "default", name)
        await client.update({**live, "spec": {"replicas": 5}}, "autoscaler")
        await reason_is(client, name, "N5")
        assert [one[:2] for one in counted.writes()].count(("create", "RoleScale")) == 1


async def test_wake_writes_a_role_scale_only_if_it_is_unchanged(connection: Connection, client: Client) -> None:
    """A wake, which scales a service up when a request arrives, writes a RoleScale only if it has not changed since it was
    read: the write names the resourceVersion. So it never overwrites a newer number.
    """
    one = service()
    name = one["metadata"]["name"]

    def sync(one: InferenceService, deps: Deps, seen: Observed, now: datetime) -> Plan:
        found = seen.children.get(("RoleScale", name))
        if one.name != name or found is None:
            scale = small_role(name, name, one.uid)
            del scale["rules"]
            scale |= {"apiVersion": keys.API_VERSION, "kind": "RoleScale", "spec": {"replicas": 0}}
            return Plan(status=dict(one.status), create=(Create(scale),) if one.name == name else ())
        version = "1" if found.replicas == 5 else str(found.version)
        body = {"metadata": {"resourceVersion": version}, "spec": {"replicas": 3}}
        wakes = (Patch("RoleScale", name, found.uid, body),) if found.replicas in (0, 5) else ()
        return Plan(scale=wakes, status=status("True", f"N{found.replicas}"))

    async with leading(connection, sync) as (_, _watcher, counted):
        await client.create(one)
        await reason_is(client, name, "N3")
        live = await client.get("RoleScale", "default", name)
        (writer,) = [each for each in live["metadata"]["managedFields"] if "f:spec" in each["fieldsV1"]]
        assert writer["manager"] == keys.SCALE_MANAGER
        await client.update({**live, "spec": {"replicas": 5}}, "autoscaler")
        await until("the write is refused", lambda: ("patch", "RoleScale", 409) in counted.requests)
        assert (await client.get("RoleScale", "default", name))["spec"]["replicas"] == 5


async def test_label_removed_by_another_client_is_restored_once(connection: Connection, client: Client) -> None:
    async with leading(connection, one_child) as (_, _watcher, counted):
        made = await client.create(service())
        name = made["metadata"]["name"]
        await reason_is(client, name, "Done")
        child = await client.get("Role", "default", f"{name}-child")
        await client.update({**child, "metadata": {**child["metadata"], "labels": {}}}, "stranger")
        await until("the label is back", lambda: ("patch", "Role", 200) in counted.requests)
        await asyncio.sleep(1.0)
        assert await quiet(counted, 1.5) == []
        assert (await client.get("Role", "default", f"{name}-child"))["metadata"]["labels"]
        await reason_is(client, name, "Done")
