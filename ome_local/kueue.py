"""The Kueue of a local cluster: its kinds, its configuration, and its webhooks.

Kueue runs as a process of this machine, so the webhooks name an address instead of a Service. Its kinds and webhooks are the
files of Kueue's own source, which are kept next to the program.
"""

import base64
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ome_local import cancel
from ome_local.binaries import ensure
from ome_local.binaries.versions import TOOLS, this_machine
from ome_local.kubeapi import KubeApi
from ome_local.kubeconfig import write_atomically
from ome_local.layout import Layout
from ome_local.spec import ClusterFile
from ome_operator.errors import UserError

NAME = "kueue"
"""Name of Kueue's process, of the port of its webhooks, and of its user at the API server."""
HEALTH = "kueue-health"
"""Name of the port of Kueue's probes."""
NAMESPACE = "kueue-system"
GROUP = "kueue.x-k8s.io"
"""API group of Kueue's kinds."""
FRAMEWORKS = ("batch/job", "pod", "deployment", "statefulset")
"""The kinds that Kueue manages: the kinds in Kueue's default configuration that every API server has."""
_DEFINED_WITHIN_S = 60.0
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
_OWN_NAMESPACES = ("kube-system", NAMESPACE)
_CONVERTED = ("localqueues", "clusterqueues", "cohorts", "workloads", "multikueueclusters")
"""Kinds with several versions whose schemas differ. Kueue's webhook converts objects between the versions."""


def program() -> Path:
    """Return the path of Kueue's program, after building it if it is missing."""
    return ensure.ensure([NAME])[NAME]


def define(api: KubeApi, at: Layout, cluster_file: ClusterFile) -> None:
    """Create Kueue's kinds and its namespace, unless they exist, and wait until the API server serves them. Kueue would
    exit if its kinds were not served.
    """
    api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for crd in _documents("config/components/crd/bases/"):
        if crd["spec"]["names"]["plural"] in _CONVERTED:
            client = _client(at, cluster_file, "/convert")
            crd["spec"]["conversion"] = {
                "strategy": "Webhook",
                "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
            }
        api.create(_CRDS, crd)
    until = time.monotonic() + _DEFINED_WITHIN_S
    while missing := [crd["metadata"]["name"] for crd in api.get(_CRDS)["items"] if _is_ours(crd) and not _served(crd)]:
        if time.monotonic() > until:
            raise UserError(f"The API server does not serve {', '.join(missing)} after {_DEFINED_WITHIN_S:.0f} s.")
        cancel.pause(0.1)


def _is_ours(crd: dict[str, Any]) -> bool:
    return str(crd["spec"]["group"]) == GROUP


def _served(crd: dict[str, Any]) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def write(at: Layout, cluster_file: ClusterFile) -> dict[str, str]:
    """Write Kueue's configuration and certificates, and return the environment variables of its process."""
    certificates = at.kueue / "certificates"
    certificates.mkdir(parents=True, exist_ok=True, mode=0o700)
    for end, name in (("crt", "tls.crt"), ("key", "tls.key")):
        shutil.copyfile(at.pki / f"server.{end}", certificates / name)
        (certificates / name).chmod(0o600)
    import yaml  # imported here, so that `ome local kubectl` starts fast

    write_atomically(_config(at), yaml.safe_dump(config(cluster_file, certificates), sort_keys=False))
    return {"KUEUE_METRICS_CERTS": str(certificates)}


def config(cluster_file: ClusterFile, certificates: Path) -> dict[str, Any]:
    """Return the configuration of a single Kueue that listens on loopback and serves no metrics."""
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{cluster_file.ports[HEALTH]}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": cluster_file.ports[NAME], "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "featureGates": {"VisibilityOnDemand": False},
        "integrations": {"frameworks": list(FRAMEWORKS)},
    }


def command(at: Layout) -> list[str]:
    """Return the command line."""
    return [
        str(program()),
        f"--config={_config(at)}",
        f"--kubeconfig={at.component_kubeconfig(NAME)}",
        "--zap-log-level=2",
    ]


def route(api: KubeApi, at: Layout, cluster_file: ClusterFile) -> None:
    """Register Kueue's webhooks, unless they are registered. Call this only when Kueue already answers requests, because the
    API server creates no pods while a registered webhook does not answer.
    """
    for found in _documents("config/components/webhook/manifests.yaml"):
        api.create(f"{_WEBHOOKS}/{found['kind'].lower()}s", webhooks(found, at, cluster_file))


def webhooks(found: dict[str, Any], at: Layout, cluster_file: ClusterFile) -> dict[str, Any]:
    """Return a webhook configuration from Kueue's source with the changes that an installation makes: a prefix of its name,
    the exclusion of system namespaces, and an address instead of a Service.
    """
    others = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(_OWN_NAMESPACES)}
    made = []
    for each in found["webhooks"]:
        client = _client(at, cluster_file, each["clientConfig"]["service"]["path"])
        made.append({**each, "clientConfig": client, "namespaceSelector": {"matchExpressions": [others]}})
    return {**found, "metadata": {"name": f"kueue-{found['metadata']['name']}"}, "webhooks": made}


def _client(at: Layout, cluster_file: ClusterFile, path: str) -> dict[str, str]:
    """Return the `clientConfig` with which the API server reaches a path of Kueue's webhook server."""
    authority = base64.b64encode((at.pki / "ca.crt").read_bytes()).decode()
    return {"url": f"https://127.0.0.1:{cluster_file.ports[NAME]}{path}", "caBundle": authority}


def _config(at: Layout) -> Path:
    return at.kueue / "kueue.yaml"


def _documents(path: str) -> Iterator[dict[str, Any]]:
    """Yield the objects in a file of Kueue's source, or in all files of a folder whose path ends with `/`."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    place = ensure.files(TOOLS[NAME], this_machine()) / path
    for file in sorted(place.glob("*.yaml")) if path.endswith("/") else [place]:
        yield from (one for one in yaml.load_all(file.read_text(), loader) if one)
