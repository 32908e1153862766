"""The attack of finding U12 on a real control plane: a tenant fills its namespace with large Events and with
PodDisruptionBudgets, while a service of another namespace is edited.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import SOAK, Tables
from tests.support import yamls
from tests.support.rig import USER, Manifest, Rig

EVENTS, BUDGETS = (50_000, 50_000) if SOAK else (3000, 2000)
LARGE_SERVICES = 60 if SOAK else 8
WORDS = 140_000
"""Number of the arguments of each large service, which have 1 MB together."""
WORKERS_MIB = 150.0
"""Largest permitted growth of memory with large services: each of ten workers receives such a service as the answer to its
write of a status.
"""
LARGE = 30_000
"""Bytes of the annotation of a large Event. Only some Events are large, so that etcd stays small."""
SHARE_LARGE = 10
GROWTH_MIB = 60.0
"""Largest permitted growth of the operator's memory in MiB. It reads at most 8 MiB of text at a time."""


pytestmark = pytest.mark.timeout(2400 if SOAK else 300)


def event(namespace: str, number: int) -> Manifest:
    """Return an Event as a controller writes it when it cannot create a pod."""
    large = {"annotations": {"a": "x" * LARGE}} if number % SHARE_LARGE == 0 else {}
    about = {
        "kind": "StatefulSet",
        "apiVersion": "apps/v1",
        "namespace": namespace,
        "name": f"s{number}",
        "uid": f"u{number}",
    }
    return {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": f"flood-{number}", "namespace": namespace, **large},
        "involvedObject": about, "type": "Warning", "reason": "FailedCreate", "message": "exceeded quota",
        "lastTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }  # fmt: skip


def budget(namespace: str, number: int) -> Manifest:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": f"a{number}"}}}
    metadata = {"name": f"flood-{number}", "namespace": namespace}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}


def flood(rig: Rig, namespace: str) -> None:
    """Create all Events and budgets, over several connections."""

    def some(first: int) -> None:
        with closing(rig.cluster.api()) as api:
            for number in range(first, EVENTS, 8):
                api.create(f"/api/v1/namespaces/{namespace}/events", event(namespace, number))
            for number in range(first, BUDGETS, 8):
                api.create(f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", budget(namespace, number))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(some, range(8)))


def memory(rig: Rig) -> float:
    """Return the peak of the operator's memory in MiB."""
    (pid,) = (row.pid for row in rig.cluster.status() if row.name == "operator")
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) / 1024


def reads(rig: Rig, resource: str, namespace: str) -> bool:
    """Return whether the operator has listed these objects of a namespace."""
    return any(
        (one.resource, one.namespace, one.verb, one.user) == (resource, namespace, "list", USER)
        for one in rig.cluster.audit(0)
    )


def edit(rig: Rig, namespace: str, image: str) -> float:
    """Edit the service, and return the seconds until its new revision is complete."""
    began = time.monotonic()
    rig.patch("InferenceService", namespace, "s", {"spec": {"engine": {"runner": {"image": image}}}})

    def complete() -> bool:
        pods = rig.all("Pod", namespace, "component=engine")
        return [pod["spec"]["containers"][0]["image"] for pod in pods] == [image]

    rig.wait("the new pod", complete, 60, often=True)
    rig.wait("complete", lambda: rig.condition(namespace, "s", "RolledOut").get("status") == "True", 60, often=True)
    return time.monotonic() - began


def test_many_events_in_one_namespace_delay_no_other(rig: Rig, namespace: str, tables: Tables) -> None:
    """Many large Events and budgets in one tenant's namespace do not delay the edit of a service in another namespace. The
    tenant has a service that serves, so that the operator reads budgets, and a service without pods, so that it reads
    Events.
    """
    other = f"{namespace}-b"
    rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    rig.create(yamls.runtime("flooded", gpus=1, router=False))
    for where in (namespace, other):
        rig.create(yamls.service(where, "s", "flooded", "engine"))
        rig.ready(where, "s", 60)
    before, calm = memory(rig), edit(rig, other, "engine:calm")
    flood(rig, namespace)
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full", "namespace": namespace}}
    rig.create({**quota, "spec": {"hard": {"pods": "1"}}})
    rig.create(yamls.service(namespace, "starved", "flooded", "engine"))
    rig.wait("the operator reads the Events", lambda: reads(rig, "events", namespace), 60)
    rig.restart()  # the operator reads everything again, the tenant's budgets included, while the neighbor is edited
    slow = edit(rig, other, "engine:flooded")
    assert reads(rig, "poddisruptionbudgets", namespace)
    grown = memory(rig) - before
    tables["flood of one namespace"] = [
        f"{EVENTS} Events and {BUDGETS} budgets: an edit of a neighbour {slow:.1f} s (before {calm:.1f} s), "
        f"the operator's peak memory {grown:+.0f} MiB"
    ]
    assert rig.condition(namespace, "s", "Ready")["status"] == "True"
    for where, name in ((namespace, "s"), (namespace, "starved"), (other, "s")):
        rig.delete("InferenceService", where, name)
    rig.delete("ClusterServingRuntime", "", "flooded")
    rig.delete("Namespace", "", other)
    assert grown < GROWTH_MIB


def test_large_services_of_one_namespace_delay_no_other(rig: Rig, namespace: str, tables: Tables) -> None:
    """The attack of finding U13: many large services of one namespace do not delay the edit of a service in another
    namespace. The review reported that 40 such services took 500 MiB, and that the edit did not end within a minute.
    """
    other = f"{namespace}-b"
    rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    rig.create(yamls.runtime("flooded", gpus=1, router=False))
    rig.create(yamls.service(other, "s", "flooded", "engine"))
    rig.ready(other, "s", 60)
    before = memory(rig)
    words = [f"{number % 9000 + 1000}" for number in range(WORDS)]
    try:
        for number in range(LARGE_SERVICES):
            body = yamls.service(namespace, f"large{number}", "flooded", "engine")
            body["spec"]["engine"] = {"runner": {"name": "main", "image": "i", "args": words}}
            rig.create(body)
        for number in range(LARGE_SERVICES):
            rig.wait_for_condition(namespace, f"large{number}", "Ready", "InvalidSpec", "move large values", 60)
        peak = memory(rig)
        rig.restart()
        slow = edit(rig, other, "engine:large")
        grown = max(peak, memory(rig)) - before
        tables["large services of one namespace"] = [
            f"{LARGE_SERVICES} services of 1 MB: an edit of a neighbour after a restart {slow:.1f} s, "
            f"the operator's peak memory {grown:+.0f} MiB"
        ]
        rig.patch("InferenceService", namespace, "large0", {"spec": {"engine": {"runner": {"args": []}}}})
        rig.ready(namespace, "large0", 60)
        assert grown < WORKERS_MIB
    finally:
        for number in range(LARGE_SERVICES):
            rig.delete("InferenceService", namespace, f"large{number}")
        rig.delete("InferenceService", other, "s")
        rig.delete("ClusterServingRuntime", "", "flooded")
        rig.delete("Namespace", "", other)
