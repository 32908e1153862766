"""A local cluster as an object, for tests, benchmarks, the demo and the command line.

```
cluster = Cluster.up("test", nodes=16, accelerator="h200", audit=True)
cluster.kubectl("get", "nodes")
cluster.restart("apiserver", signal.SIGKILL)
cluster.down()
```
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ome_local import (
    audit_log,
    creation,
    keda,
    kubeconfig,
    kueue,
    lifecycle,
    processes,
    prometheus,
    servers,
    spec,
    stages,
    tinymodel,
    tokens,
)
from ome_local.binaries import ensure
from ome_local.components import SERVERS
from ome_local.kind import config as kind_config
from ome_local.kind import images as kind_images
from ome_local.kubeapi import ApiError, ApiUnreachable, KubeApi, load
from ome_local.layout import DEFAULT_NAME, Layout, known_clusters, layout
from ome_local.processes import Process
from ome_local.realnode import images
from ome_local.realnode import start as real
from ome_local.realnode.spec import COMPONENTS, NAME, RealNode
from ome_local.spec import ClusterFile, Spec
from ome_operator.errors import UserError

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True)
class Row:
    """The state of one process of the cluster."""

    name: str
    pid: int | None
    """Process ID; None if the process is not running."""


@dataclass(frozen=True)
class Cluster:
    """An existing cluster. Its components are etcd, apiserver, controller-manager, scheduler, kwok and tokens.

    A cluster with Prometheus also has the components prometheus and prometheus-targets, a cluster with Kueue the
    component kueue, and a cluster with KEDA the components keda and keda-adapter. A cluster with a real node also has
    node (the process that holds the node's namespaces), containerd, kubelet, kube-proxy and coredns.
    """

    at: Layout
    kept: ClusterFile

    @classmethod
    def up(cls, name: str = DEFAULT_NAME, *, join: bool = True, **options: Any) -> Self:
        """Create the cluster, or start the missing parts of an existing cluster. The options are the fields of Spec.
        Running processes are not changed.

        If `join` is false, the real node can load images but joins the cluster only at the next `up`.
        """
        at = layout(name)
        return cls(at, lifecycle.up(at, Spec(**options), join=join))

    @classmethod
    def open(cls, name: str = DEFAULT_NAME) -> Self:
        """Return the existing cluster with the name `name`, running or stopped. Raises UserError if the cluster does not
        exist.
        """
        at = layout(name)
        kept = spec.load(at)
        if kept is None:
            there = f": name another one with --name ({', '.join(known_clusters())}), or" if known_clusters() else ":"
            raise UserError(f"There is no cluster {name!r}{there} create it with `ome local up --name {name}`.")
        return cls(at, kept)

    @property
    def name(self) -> str:
        """Name of the cluster and of its directory."""
        return self.at.root.name

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig file of the administrator."""
        return self.at.kubeconfig

    @property
    def server(self) -> str:
        """Address of the API server."""
        return str(load(self.kubeconfig)["clusters"][0]["cluster"]["server"])

    @property
    def prometheus(self) -> str:
        """URL of the cluster's Prometheus; "" if the cluster has no Prometheus."""
        return prometheus.url(self.kept)

    def down(self) -> None:
        """Stop the cluster's processes and remove its files."""
        lifecycle.down(self.at)

    # --- the API ----------------------------------------------------------------------------------------------------
    def api(self, timeout: float = 10.0) -> KubeApi:
        """Return a small Kubernetes client with the administrator's identity. The client has one connection, so only one
        thread may use it.
        """
        return KubeApi.of(self.at.kubeconfig, timeout)

    def environment(self, config: Path | None = None) -> dict[str, str]:
        """Return the environment variables of kubectl and helm for this cluster. Caches are in the cluster's directory
        instead of the user's home. `config` is the kubeconfig; by default the cluster's own.
        """
        inside = {"KUBECACHEDIR": "kubectl", "HELM_CACHE_HOME": "helm/cache", "HELM_CONFIG_HOME": "helm/config"}
        places = {key: str(self.at.root / "cache" / part) for key, part in inside.items()}
        places["HELM_DATA_HOME"] = str(self.at.root / "cache" / "helm" / "data")
        return {**os.environ, **places, "KUBECONFIG": str(config or self.kubeconfig)}

    def program(self, name: str) -> Path:
        """Return the path of kubectl, helm or another program of the cluster."""
        return ensure.ensure([name], self.kept.spec.version)[name]

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl, and return its output. Raises UserError with kubectl's error message. `stdin` is the text that
        kubectl reads from its standard input.
        """
        return self.run("kubectl", *words, stdin=stdin)

    def helm(self, *words: str) -> str:
        """Run helm, and return its output. Raises UserError with helm's error message."""
        return self.run("helm", *words)

    def run(self, program: str, *words: str, stdin: str | None = None) -> str:
        """Run a program of the cluster with its environment, and return its output. `stdin` is the text that the program
        reads from its standard input; it is empty by default. Raises UserError with the program's error message.
        """
        done = subprocess.run(
            [str(self.program(program)), *words],
            input=stdin if stdin is not None else "",
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise UserError(f"`{program} {' '.join(words)}` failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        """Apply these objects with `kubectl apply` on the client side."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(listed))

    def await_crds(self, within_s: float = 60.0) -> None:
        """Wait until the API server has established the kinds of all CRDs. `kubectl wait` would fail for a CRD that has
        no conditions yet.
        """
        until = time.monotonic() + within_s
        with closing(self.api()) as api:
            while missing := [crd["metadata"]["name"] for crd in api.get(_CRDS)["items"] if not _established(crd)]:
                if time.monotonic() > until:
                    raise UserError(f"These CRDs are not established after {within_s:.0f} s: {', '.join(missing)}.")
                time.sleep(0.05)

    # --- processes --------------------------------------------------------------------------------------------------
    def start(self, name: str) -> None:
        """Start a component, and return when it serves requests."""
        if name not in self._own():
            raise UserError(f"{name} is not a component of cluster {self.name}. Its components: {', '.join(self._own())}.")
        if name in COMPONENTS:
            real.start(self.node, name)
        else:
            servers.start(self.at, self.kept, name)

    def stop(self, name: str, number: int = signal.SIGTERM, grace_s: float = 20.0) -> None:
        """Stop a component or a spawned process: send the signal, and SIGKILL after the grace period. Return when it has
        ended.
        """
        processes.stop_process(self.at, name, number, grace_s)

    def restart(self, name: str, number: int = signal.SIGTERM) -> None:
        """Stop a component, and start it again on the same data and ports. `number` is the number of the signal that stops
        it.
        """
        self.stop(name, number)
        self.start(name)

    def pause(self, name: str) -> None:
        """Pause a process: its connections stay open, but it does not respond."""
        self._running(name).signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let a paused process continue."""
        self._running(name).signal(signal.SIGCONT)

    def extra_apiserver(self) -> Path:
        """Start a second API server that uses the same etcd, and return a kubeconfig for it. `stop(servers.SECOND)` stops
        it.
        """
        servers.start(self.at, self.kept, servers.SECOND)
        file, server = self.at.component_kubeconfig(servers.SECOND), creation.server(self.kept, servers.SECOND)
        kubeconfig.with_certificate(file, name=f"ome-{self.name}-2", server=server, pki=self.at.pki, user="admin")
        return file

    def spawn(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Process:
        """Run a process that belongs to the cluster: `down` stops the process, and its output is written to `log(name)`. If
        the process ends by itself, `up` starts it again. `env` is added to the environment of this process.
        """
        if name in (*SERVERS, *COMPONENTS, servers.SECOND, *prometheus.PROCESSES, kueue.NAME, *keda.PROCESSES):
            raise UserError(f"{name} is a component of the cluster; choose another name for this process.")
        if processes.find_process(self.at, name):
            raise UserError(f"{name} is already running.")
        return processes.keep(self.at, name, argv, env)

    def process(self, name: str) -> Process | None:
        """Return the component or the spawned process with the name `name`; None if it is not running."""
        return processes.find_process(self.at, name)

    def log(self, name: str) -> Path:
        """Return the log file of this process."""
        return self.at.logs / f"{name}.log"

    def status(self) -> list[Row]:
        """Return the state of every process that should be running."""
        own = self._own()
        listed = [*own, *(name for name in processes.names(self.at) if name not in own)]
        return [Row(name, found.pid if (found := self.process(name)) else None) for name in listed]

    def ended_processes(self) -> list[str]:
        """Return the names of processes that should be running but have ended."""
        return [row.name for row in self.status() if not row.pid]

    def is_ready(self) -> bool:
        """Return whether the API server reports that it is ready."""
        try:
            return bool(self.api(timeout=2.0).get("/readyz") == "ok")
        except (ApiError, ApiUnreachable, OSError):
            return False

    # --- simulated nodes --------------------------------------------------------------------------------------------
    def set_stages(self, *more: stages.Stage, start_delay_s: float | None = None) -> None:
        """Replace the Stages of simulated pods by the default Stages and the given Stages. They apply to existing and new
        pods. `start_delay_s` is the number of seconds until a pod becomes Ready; by default that of the cluster.

        kwok is restarted, so delays that are in progress begin again.
        """
        delay = self.kept.spec.start_delay_s if start_delay_s is None else start_delay_s
        creation.write_stages(self.at, self.kept.with_spec(start_delay_s=delay).spec, *more)
        self.restart("kwok", signal.SIGKILL)

    # --- the real node ----------------------------------------------------------------------------------------------
    @property
    def node(self) -> RealNode:
        """Return the addresses and paths of the real node. The cluster must have been created with real_node=True."""
        if self.kept.network is None:
            raise UserError(f"Cluster {self.name} has no real node: create the cluster with --real-node.")
        return RealNode(self.at, self.kept.network)

    def load_image(self, file: Path) -> None:
        """Load the images of a docker-archive into the real node or into kind's nodes. Pods can then use the images
        without pulling them.
        """
        if self.kept.spec.kind:
            kind_images.load(self.at, self.real_nodes, file)
        else:
            images.load(self.node, file)

    @property
    def real_nodes(self) -> tuple[str, ...]:
        """Return the names of the nodes that run containers; () if all nodes are simulated."""
        if self.kept.spec.kind:
            return kind_config.real_nodes(self.at, self.kept.spec.workers)
        return (NAME,) if self.kept.network else ()

    @property
    def models(self) -> Path:
        """Folder of this machine that is /var/lib/ome/models on real nodes. Kind's nodes cannot write to it."""
        return self.at.models if self.kept.spec.kind else tinymodel.PLACE.parent

    # --- identities and counts --------------------------------------------------------------------------------------
    def keep_token(self, namespace: str, account: str, life_s: int = tokens.LIFE_S) -> Path:
        """Return a kubeconfig with a token of this ServiceAccount. The token is renewed as long as the cluster is
        running.
        """
        try:
            return tokens.keep(self.at, namespace, account, life_s)
        except ApiError as error:
            raise UserError(f"No token for ServiceAccount {namespace}/{account}: {error}") from error

    def audit_mark(self) -> int:
        """Return the current end of the audit log."""
        return audit_log.log_position(self.at.audit_log)

    def audit(self, since: int = 0) -> list[audit_log.Request]:
        """Return the requests after the position `since`. The cluster must have been created with audit=True."""
        if not self.kept.spec.audit:
            raise UserError(f"Cluster {self.name} writes no audit log: create the cluster with --audit.")
        return list(audit_log.read(self.at.audit_log, since))

    def _own(self) -> tuple[str, ...]:
        """Return the names of the components that are processes of this package."""
        own = SERVERS if not self.kept.spec.kind else SERVERS[4:]
        own = (*own, *prometheus.PROCESSES) if self.kept.spec.prometheus else own
        own = (*own, kueue.NAME) if self.kept.spec.kueue else own
        own = (*own, *keda.PROCESSES) if self.kept.spec.keda else own
        return (*own, *COMPONENTS) if self.kept.network else own

    def _running(self, name: str) -> Process:
        if process := self.process(name):
            return process
        raise UserError(f"{name} does not run in cluster {self.name}.")


def _established(crd: Mapping[str, Any]) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)
