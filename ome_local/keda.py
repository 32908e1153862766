"""The KEDA of a local cluster: its kinds, its two processes, and its API of external metrics.

KEDA's operator and its metrics adapter run as processes of this machine. The API server forwards requests for external
metrics to the adapter through a Service of type ExternalName, which names this machine instead of pods. KEDA's admission
webhooks do not run.
"""

import base64
import shutil
import time
from typing import Any

from ome_local import cancel, ports
from ome_local.binaries import ensure
from ome_local.binaries.versions import TOOLS, this_machine
from ome_local.kubeapi import ApiError, KubeApi
from ome_local.layout import Layout
from ome_local.spec import ClusterFile
from ome_operator.errors import UserError

NAME = "keda"
"""Name of the process of KEDA's operator, of the port on which the adapter sends requests to this process, and of KEDA's
user at the API server."""
ADAPTER = "keda-adapter"
"""Name of the process of the metrics adapter, and of its port."""
HEALTH = "keda-health"
"""Name of the port of the operator's probes."""
PROCESSES = (NAME, ADAPTER)
PORTS = (*PROCESSES, HEALTH)
NAMESPACE = "keda"
SERVICE = "keda-metrics-apiserver"
SERVED_AS = f"{SERVICE}.{NAMESPACE}.svc"
"""Name that the API server expects in the adapter's certificate."""
CERTIFICATE = "keda-server"
"""Name of the certificate with which both processes serve, and with which the adapter contacts the operator."""
_PROGRAMS = {NAME: "keda-operator", ADAPTER: "keda-adapter"}
_GROUP = "external.metrics.k8s.io"
_VERSION = "v1beta1"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
_WITHIN_S = 60.0
ENVIRONMENT = {"WATCH_NAMESPACE": "", "POD_NAMESPACE": NAMESPACE, "KEDA_CLUSTER_OBJECT_NAMESPACE": NAMESPACE}


def programs() -> None:
    """Build KEDA's programs if they are missing."""
    ensure.ensure(list(_PROGRAMS.values()))


def define(api: KubeApi) -> None:
    """Create KEDA's kinds, its namespace and its Service, unless they exist, and wait until the API server serves the
    kinds. KEDA would exit if its kinds were not served.
    """
    api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    spec = {"type": "ExternalName", "externalName": "localhost"}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE, "namespace": NAMESPACE}, "spec": spec}
    api.create(f"/api/v1/namespaces/{NAMESPACE}/services", service)
    import yaml  # imported here, so that `ome local kubectl` starts fast

    folder = ensure.files(TOOLS[_PROGRAMS[NAME]], this_machine()) / "config/crd/bases"
    names = []
    for file in sorted(folder.glob("*.yaml")):
        crd = yaml.safe_load(file.read_text())
        names.append(str(crd["metadata"]["name"]))
        api.create(_CRDS, crd)
    _wait(api, [f"{_CRDS}/{name}" for name in names], "Established")


def write(at: Layout) -> dict[str, str]:
    """Write the certificates of KEDA into the cluster's folder for them, and return the environment variables of both of
    KEDA's processes.
    """
    at.keda.mkdir(parents=True, exist_ok=True, mode=0o700)
    for file, name in (("ca.crt", "ca.crt"), (f"{CERTIFICATE}.crt", "tls.crt"), (f"{CERTIFICATE}.key", "tls.key")):
        shutil.copyfile(at.pki / file, at.keda / name)
        (at.keda / name).chmod(0o600)
    return ENVIRONMENT


def command(at: Layout, cluster_file: ClusterFile, name: str) -> list[str]:
    """Return the command line of one of the two processes."""
    program = ensure.ensure([_PROGRAMS[name]])[_PROGRAMS[name]]
    kubeconfig, grpc = at.component_kubeconfig(NAME), f"127.0.0.1:{cluster_file.ports[NAME]}"
    if name == NAME:
        return [
            str(program),
            f"--kubeconfig={kubeconfig}",
            f"--metrics-service-bind-address={grpc}",
            f"--health-probe-bind-address=127.0.0.1:{cluster_file.ports[HEALTH]}",
            "--enable-prometheus-metrics=false",
            f"--cert-dir={at.keda}",
            "--zap-log-level=info",
        ]
    return [
        str(program),
        f"--kubeconfig={kubeconfig}",
        f"--lister-kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--metrics-service-address={grpc}",
        "--bind-address=127.0.0.1",
        f"--secure-port={cluster_file.ports[ADAPTER]}",
        f"--tls-cert-file={at.keda / 'tls.crt'}",
        f"--tls-private-key-file={at.keda / 'tls.key'}",
        f"--cert-dir={at.keda}",
        "--port=0",  # its own metrics: any free port
        "--zap-log-level=error",
    ]


def keda_answers(cluster_file: ClusterFile, name: str) -> bool:
    """Return whether one of KEDA's two processes answers requests."""
    if name == NAME:
        return ports.answers_with_200("127.0.0.1", cluster_file.ports[HEALTH], "/readyz")
    return ports.listens("127.0.0.1", cluster_file.ports[ADAPTER])


def route(api: KubeApi, at: Layout, cluster_file: ClusterFile) -> None:
    """Register the API of external metrics, unless it is registered, and wait until the API server reaches the adapter."""
    api.create(_API_SERVICES, api_service(at, cluster_file))
    _wait(api, [f"{_API_SERVICES}/{_VERSION}.{_GROUP}"], "Available")


def api_service(at: Layout, cluster_file: ClusterFile) -> dict[str, Any]:
    """Return the APIService of external metrics."""
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{_VERSION}.{_GROUP}"},
        "spec": {
            "service": {"name": SERVICE, "namespace": NAMESPACE, "port": cluster_file.ports[ADAPTER]},
            "caBundle": base64.b64encode((at.pki / "ca.crt").read_bytes()).decode(),
            "group": _GROUP,
            "version": _VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        },
    }


def _wait(api: KubeApi, paths: list[str], condition: str) -> None:
    """Wait until each object at these API paths has this condition."""
    until, left = time.monotonic() + _WITHIN_S, paths
    while left := [path for path in left if not _has(api, path, condition)]:
        if time.monotonic() > until:
            names = ", ".join(path.rpartition("/")[2] for path in left)
            raise UserError(f"The API server does not report {condition} for {names} after {_WITHIN_S:.0f} s.")
        cancel.pause(0.1)


def _has(api: KubeApi, path: str, condition: str) -> bool:
    try:
        found = (api.get(path).get("status") or {}).get("conditions") or ()
    except ApiError:
        return False
    return any(one["type"] == condition and one["status"] == "True" for one in found)
