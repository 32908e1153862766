"""Start the processes of a control plane, and wait until they serve requests."""

import time
from collections.abc import Callable

from ome_local import cancel, components, creation, keda, kueue, ports, processes, prometheus, targets
from ome_local.binaries import ensure
from ome_local.kubeapi import ApiError, ApiUnreachable, KubeApi
from ome_local.layout import Layout
from ome_local.spec import ClusterFile
from ome_operator.errors import UserError

READY_WITHIN_S = 60.0
SECOND = "apiserver-2"
"""Name of the process of a second API server that uses the same etcd, for tests."""
DIRECT = {"NO_PROXY": "*", "no_proxy": "*"}
"""Environment variables that disable proxies for a cluster with a real node, because no proxy can reach the pod network."""


def start(at: Layout, cluster_file: ClusterFile, name: str) -> None:
    """Start a process unless it is running. If other processes depend on the process, wait until it serves requests."""
    if name == prometheus.NAME and prometheus.write(at, cluster_file):
        processes.stop_process(at, name)  # Prometheus reads its configuration only at its start
    if processes.find_process(at, name) is None:
        _wait_free(cluster_file.ports.get(name))
        processes.spawn(at, name, command(at, cluster_file, name), _environment(at, cluster_file, name))
    # Wait also for a process that was already running: the command that started it may have been killed before it served
    # requests.
    if name == "etcd":
        wait_until_served(at, name, lambda: ports.listens("127.0.0.1", cluster_file.ports["etcd"]), "accept connections")
    elif name.startswith("apiserver"):
        wait_ready(at, cluster_file, name)
    elif name == prometheus.NAME:
        wait_until_served(
            at,
            name,
            lambda: ports.answers_with_200("127.0.0.1", cluster_file.ports[name], "/-/ready"),
            "report that it is ready",
        )
    elif name == kueue.NAME:
        wait_until_served(
            at,
            name,
            lambda: ports.answers_with_200("127.0.0.1", cluster_file.ports[kueue.HEALTH], "/readyz"),
            "report that it is ready",
        )
    elif name in keda.PROCESSES:
        wait_until_served(at, name, lambda: keda.keda_answers(cluster_file, name), "report that it is ready")


def _environment(at: Layout, cluster_file: ClusterFile, name: str) -> dict[str, str] | None:
    """Return the environment variables that a process of the cluster has besides those of this command; None if there are
    none.
    """
    direct = DIRECT if cluster_file.network else {}
    if name == kueue.NAME:
        return kueue.write(at, cluster_file)
    return {**direct, **keda.write(at)} if name in keda.PROCESSES else direct or None


def _wait_free(port: int | None, within_s: float = 5.0) -> None:
    """Wait until the port is free. The port can stay in use for a moment after a process was killed: the process is already
    a zombie, but its other threads have not ended yet.
    """
    until = time.monotonic() + within_s
    while port is not None and not ports.is_free(port) and time.monotonic() < until:
        time.sleep(0.02)


def command(at: Layout, cluster_file: ClusterFile, name: str) -> list[str]:
    """Return the complete command line of a process by its short name."""
    if name == "tokens":
        return [processes.PYTHON, "-m", "ome_local.tokens", "--dir", str(at.root)]
    if name == prometheus.NAME:
        return prometheus.command(at, cluster_file)
    if name == kueue.NAME:
        return kueue.command(at)
    if name in keda.PROCESSES:
        return keda.command(at, cluster_file, name)
    if name == targets.NAME:
        found_by = prometheus.identity(at, cluster_file)
        return [processes.PYTHON, "-m", "ome_local.targets", "--dir", str(at.root), "--kubeconfig", str(found_by)]
    program = components.PROGRAMS["apiserver" if name == SECOND else name]
    path = str(ensure.ensure([program], cluster_file.spec.version)[program])
    match name:
        case "etcd":
            return [path, *components.etcd(at, cluster_file)]
        case "apiserver":
            return [path, *components.apiserver(at, cluster_file, cluster_file.ports[name], at.audit_log)]
        case _ if name == SECOND:
            return [path, *components.apiserver(at, cluster_file, cluster_file.ports[name], at.root / "audit-2.log")]
        case "controller-manager":
            return [path, *components.controller_manager(at, cluster_file)]
        case "scheduler":
            return [path, *components.scheduler(at, cluster_file)]
        case _:
            own = at.kubeconfig if cluster_file.spec.kind else at.component_kubeconfig("kwok")
            return [path, *components.kwok(at, own)]


def wait_ready(at: Layout, cluster_file: ClusterFile, name: str = "apiserver") -> None:
    """Wait until the API server's /readyz returns ok, which also means that the built-in roles exist."""
    api = KubeApi.of(at.kubeconfig, timeout=5.0, server=creation.server(cluster_file, name))
    wait_until_served(at, name, lambda: api.get("/readyz") == "ok", "report that it is ready")
    api.close()


def wait_until_served(
    at: Layout, name: str, served: Callable[[], bool], action: str, within_s: float = READY_WITHIN_S
) -> None:
    """Poll until `served` returns True. `action` is what the program has to do, worded for the message "NAME did not …".
    Raises UserError with the end of the process's log if the process ends, or if
    `within_s` seconds have passed.
    """
    until = time.monotonic() + within_s
    while True:
        try:
            if served():
                return
        except (ApiError, ApiUnreachable):
            pass
        if processes.find_process(at, name) is None:
            raise UserError(f"{name} ended instead of starting. {processes.end_of_log(at, name)}")
        if time.monotonic() > until:
            raise UserError(f"{name} did not {action} within {within_s:.0f} s. {processes.end_of_log(at, name)}")
        cancel.pause(0.03)
