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
    kubeconfig,
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
from ome_local.layout import DEFAULT_NAME, Layout, known, layout
from ome_local.processes import Process
from ome_local.realnode import images
from ome_local.realnode import start as real
from ome_local.realnode.spec import COMPONENTS, NAME, RealNode
from ome_local.spec import Kept, Spec
from ome_operator.errors import UserError

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True)
class Row:
    """One process in `status`."""

    name: str
    pid: int | None
    """None when it does not run."""


@dataclass(frozen=True)
class Cluster:
    """A cluster that exists. Component names: etcd, apiserver, controller-manager, scheduler, kwok, tokens.

    With Prometheus also prometheus and prometheus-targets.
    With a real node also node (which holds its namespaces), containerd, kubelet, kube-proxy, coredns.
    """

    at: Layout
    kept: Kept

    @classmethod
    def up(cls, name: str = DEFAULT_NAME, *, join: bool = True, **options: Any) -> Self:
        """Create or complete it; options are the fields of Spec. Does nothing to what already runs.

        `join=False`: a real node comes with the next `up`, and takes images already.
        """
        at = layout(name)
        return cls(at, lifecycle.up(at, Spec(**options), join=join))

    @classmethod
    def open(cls, name: str = DEFAULT_NAME) -> Self:
        """The cluster of this name, running or not; a sentence when there is none."""
        at = layout(name)
        kept = spec.load(at)
        if kept is None:
            there = f" (there is {', '.join(known())})" if known() else ""
            raise UserError(f"There is no cluster {name!r}{there}: `ome local up --name {name}` makes one.")
        return cls(at, kept)

    @property
    def name(self) -> str:
        """Its name, which is its directory's."""
        return self.at.root.name

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig file."""
        return self.at.kubeconfig

    @property
    def server(self) -> str:
        """The API server's address."""
        return str(load(self.kubeconfig)["clusters"][0]["cluster"]["server"])

    @property
    def prometheus(self) -> str:
        """The URL of its Prometheus, "" where it has none."""
        return prometheus.url(self.kept)

    def down(self) -> None:
        """End its processes and remove its files."""
        lifecycle.down(self.at)

    # --- the API ----------------------------------------------------------------------------------------------------
    def api(self, timeout: float = 10.0) -> KubeApi:
        """A small client with the administrator's identity; one connection, for one thread."""
        return KubeApi.of(self.at.kubeconfig, timeout)

    def environment(self, config: Path | None = None) -> dict[str, str]:
        """For kubectl and helm: this cluster, and caches inside its directory instead of the person's home."""
        inside = {"KUBECACHEDIR": "kubectl", "HELM_CACHE_HOME": "helm/cache", "HELM_CONFIG_HOME": "helm/config"}
        places = {key: str(self.at.root / "cache" / part) for key, part in inside.items()}
        places["HELM_DATA_HOME"] = str(self.at.root / "cache" / "helm" / "data")
        return {**os.environ, **places, "KUBECONFIG": str(config or self.kubeconfig)}

    def program(self, name: str) -> Path:
        """Path of kubectl, helm or another program of the cluster."""
        return ensure.ensure([name], self.kept.spec.version)[name]

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """What kubectl prints; its complaint as UserError."""
        return self.run("kubectl", *words, stdin=stdin)

    def helm(self, *words: str) -> str:
        """What helm prints; its complaint as UserError."""
        return self.run("helm", *words)

    def run(self, program: str, *words: str, stdin: str | None = None) -> str:
        """Run a program of the cluster with its environment."""
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
        """Client-side `kubectl apply` of these objects."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(listed))

    def await_crds(self, within_s: float = 60.0) -> None:
        """Wait until the kinds of all CRDs are established. `kubectl wait` would fail on one that has no conditions yet."""
        until = time.monotonic() + within_s
        with closing(self.api()) as api:
            while missing := [crd["metadata"]["name"] for crd in api.get(_CRDS)["items"] if not _established(crd)]:
                if time.monotonic() > until:
                    raise UserError(f"Not established after {within_s:.0f} s: {', '.join(missing)}.")
                time.sleep(0.05)

    # --- processes --------------------------------------------------------------------------------------------------
    def start(self, name: str) -> None:
        """Start one component; returns when it serves."""
        if name not in self._own():
            raise UserError(f"{name} is no component of cluster {self.name}; these are {', '.join(self._own())}.")
        if name in COMPONENTS:
            real.start(self.node, name)
        else:
            servers.start(self.at, self.kept, name)

    def stop(self, name: str, number: int = signal.SIGTERM, grace_s: float = 20.0) -> None:
        """End one process, of ours or spawned: the signal, and SIGKILL after the grace. Returns when it is gone."""
        processes.stop(self.at, name, number, grace_s)

    def restart(self, name: str, number: int = signal.SIGTERM) -> None:
        """Stop one component and start it again on the same data and ports."""
        self.stop(name, number)
        self.start(name)

    def pause(self, name: str) -> None:
        """Freeze one process: its connections stay open and nothing is answered."""
        self._running(name).signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let a paused process go on."""
        self._running(name).signal(signal.SIGCONT)

    def extra_apiserver(self) -> Path:
        """A second API server on the same etcd; a kubeconfig for it. `stop(servers.SECOND)` ends it."""
        servers.start(self.at, self.kept, servers.SECOND)
        file, server = self.at.component_kubeconfig(servers.SECOND), creation.server(self.kept, servers.SECOND)
        kubeconfig.with_certificate(file, name=f"ome-{self.name}-2", server=server, pki=self.at.pki, user="admin")
        return file

    def spawn(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Process:
        """Run a process that belongs to the cluster: `down` ends it, its words go to `log(name)`. When it ends by itself
        `up` starts it again.
        """
        if name in (*SERVERS, *COMPONENTS, servers.SECOND, *prometheus.PROCESSES):
            raise UserError(f"{name} is a component of the cluster; choose another name for your process.")
        if processes.find(self.at, name):
            raise UserError(f"{name} runs already.")
        return processes.keep(self.at, name, argv, env)

    def process(self, name: str) -> Process | None:
        """A component or spawned process, while it runs."""
        return processes.find(self.at, name)

    def log(self, name: str) -> Path:
        """The file with everything that this process said."""
        return self.at.logs / f"{name}.log"

    def status(self) -> list[Row]:
        """Every process that should run, and whether it does."""
        own = self._own()
        listed = [*own, *(name for name in processes.names(self.at) if name not in own)]
        return [Row(name, found.pid if (found := self.process(name)) else None) for name in listed]

    def ended(self) -> list[str]:
        """Processes that should run and do not."""
        return [row.name for row in self.status() if not row.pid]

    def ready(self) -> bool:
        """True when the API server says so."""
        try:
            return bool(self.api(timeout=2.0).get("/readyz") == "ok")
        except (ApiError, ApiUnreachable, OSError):
            return False

    # --- simulated nodes --------------------------------------------------------------------------------------------
    def set_stages(self, *more: stages.Stage, start_delay_s: float | None = None) -> None:
        """Change how simulated pods live: the defaults plus these (none: the defaults again), for pods of now and later.

        kwok is restarted: a delay that was running begins anew.
        """
        delay = self.kept.spec.start_delay_s if start_delay_s is None else start_delay_s
        creation.write_stages(self.at, self.kept.with_spec(start_delay_s=delay).spec, *more)
        self.restart("kwok", signal.SIGKILL)

    # --- the real node ----------------------------------------------------------------------------------------------
    @property
    def node(self) -> RealNode:
        """Facts of the real node: its addresses and paths. The cluster must have been made with real_node=True."""
        if self.kept.network is None:
            raise UserError(f"Cluster {self.name} has no real node: make it with --real-node.")
        return RealNode(self.at, self.kept.network)

    def load_image(self, file: Path) -> None:
        """Give the real node, or kind's, the images of a docker-archive; pods use them without a pull."""
        if self.kept.spec.kind:
            kind_images.load(self.at, self.real_nodes, file)
        else:
            images.load(self.node, file)

    @property
    def real_nodes(self) -> tuple[str, ...]:
        """The names of the nodes that run containers of anybody; none where all are simulated."""
        if self.kept.spec.kind:
            return kind_config.real_nodes(self.at, self.kept.spec.workers)
        return (NAME,) if self.kept.network else ()

    @property
    def models(self) -> Path:
        """The folder of this machine that real nodes see as /var/lib/ome/models. Kind's nodes cannot write to it."""
        return self.at.models if self.kept.spec.kind else tinymodel.PLACE.parent

    # --- identities and counts --------------------------------------------------------------------------------------
    def keep_token(self, namespace: str, account: str, life_s: int = tokens.LIFE_S) -> Path:
        """A kubeconfig with this ServiceAccount's token, renewed as long as the cluster is up."""
        try:
            return tokens.keep(self.at, namespace, account, life_s)
        except ApiError as error:
            raise UserError(f"No token for ServiceAccount {namespace}/{account}: {error}") from error

    def audit_mark(self) -> int:
        """Where the audit log ends now."""
        return audit_log.mark(self.at.audit_log)

    def audit(self, since: int = 0) -> list[audit_log.Request]:
        """Requests since a mark. The cluster must have been made with audit=True."""
        if not self.kept.spec.audit:
            raise UserError(f"Cluster {self.name} writes no audit log: make it with --audit.")
        return list(audit_log.read(self.at.audit_log, since))

    def _own(self) -> tuple[str, ...]:
        """The components that are processes of ours."""
        own = SERVERS if not self.kept.spec.kind else SERVERS[4:]
        own = (*own, *prometheus.PROCESSES) if self.kept.spec.prometheus else own
        return (*own, *COMPONENTS) if self.kept.network else own

    def _running(self, name: str) -> Process:
        if process := self.process(name):
            return process
        raise UserError(f"{name} does not run in cluster {self.name}.")


def _established(crd: Mapping[str, Any]) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)
