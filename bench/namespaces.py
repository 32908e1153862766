"""Measures the cost of `watchNamespaces`: `python -m bench.namespaces`.

It runs operators with the chart's Roles in 1, 10 and 50 empty namespaces, and an operator of all namespaces for comparison,
on a real API server with an audit log. It counts the requests of each operator until it leads, and in a minute without
changes, and measures the CPU time and memory of the operator and of the API server.
"""

import time
from typing import Any

from bench.processes import Usage, usage
from ome_local.audit_log import Request
from ome_local.cluster import Cluster
from tests.support import clusters
from tests.support.rig import USER, Rig, probe_state

COUNTS = (0, 1, 10, 50)
"""Numbers of namespaces; 0 means all of them, by a ClusterRole."""
IDLE_S = 60.0


def main() -> None:
    """Measure, and print a table for docs/namespaces.md."""
    with clusters.fresh("bench", nodes=2) as cluster:
        rig = Rig(cluster)
        rig.install()
        for number in range(max(COUNTS)):
            rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name(number)}})
        rows = [measure_namespaces(rig, count) for count in COUNTS]
    print("| namespaces | " + " | ".join(rows[0]) + " |\n|" + "---|" * (len(rows[0]) + 1))
    for count, row in zip(COUNTS, rows, strict=True):
        print(f"| {count or 'all'} | " + " | ".join(str(value) for value in row.values()) + " |")


def name(number: int) -> str:
    """Return the name of a namespace."""
    return f"team-{number:02}"


def measure_namespaces(rig: Rig, count: int) -> dict[str, Any]:
    """Measure an operator with `count` namespaces, and return the row of the table."""
    named = [name(number) for number in range(count)]
    rig.install(*([f"watchNamespaces={{{','.join(named)}}}"] if named else []))
    time.sleep(2.0)
    mark, began, server = rig.cluster.audit_mark(), time.monotonic(), process_usage(rig.cluster, "apiserver").cpu_s
    rig.start("operator", *(word for each in named for word in ("--watch-namespace", each)), program="ome_operator")
    while probe_state(rig.port) != "leading":
        time.sleep(0.02)
    seconds = time.monotonic() - began
    time.sleep(5.0)
    start, started = sent(rig, mark), process_usage(rig.cluster, "apiserver").cpu_s - server
    mark, before, server = (
        rig.cluster.audit_mark(),
        process_usage(rig.cluster, "operator").cpu_s,
        process_usage(rig.cluster, "apiserver").cpu_s,
    )
    time.sleep(IDLE_S)
    idle, own, of_server = (
        sent(rig, mark),
        process_usage(rig.cluster, "operator").cpu_s - before,
        process_usage(rig.cluster, "apiserver").cpu_s - server,
    )
    memory = process_usage(rig.cluster, "operator").peak_mib
    rig.stop()
    return {
        "lists": sum(each.verb == "list" for each in start),
        "watches": sum(each.verb == "watch" for each in start),
        "seconds until it leads": f"{seconds:.1f}",
        "CPU of the API server meanwhile, s": f"{started:.1f}",
        "requests in an idle minute": len(idle),
        "CPU in it, operator": f"{own / IDLE_S:.1%}",
        "API server": f"{of_server / IDLE_S:.1%}",
        "memory at most, MiB": round(memory),
    }


def sent(rig: Rig, mark: int) -> list[Request]:
    """Return the operator's requests, except those for its Lease."""
    return [each for each in rig.cluster.audit(mark) if each.user == USER and each.resource != "leases"]


def process_usage(cluster: Cluster, which: str) -> Usage:
    """Return the CPU time and memory that a process of the cluster has used so far."""
    found = cluster.process(which)
    assert found is not None
    return usage(found.pid)


if __name__ == "__main__":
    main()
