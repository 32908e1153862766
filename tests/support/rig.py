"""A real control plane with our charts and our operator as a process, for the control-plane suite.

The API server is real: objects are read and written over HTTP with the administrator's identity, and the
operator runs with the token of the chart's ServiceAccount.
"""

import os
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ome_local.audit_log import Request
from ome_local.cluster import Cluster
from ome_local.kubeapi import ApiError, ApiUnreachable
from ome_local.ports import choose
from ome_operator.controllers.policies import NAME as PROBE
from tests.support import loaded

ROOT = Path(__file__).parents[2]
IMAGE = ("--set", "image.repository=registry.example.com/ome-operator")
"""Values without which the chart does not install."""
OURS = ("--sidecar-image=registry.example.com/ome-operator:1", "--tools-image=registry.example.com/ome-agent:1")
"""Options that the chart always passes to the operator. Operators that tests start directly get the same options."""
USER = "system:serviceaccount:ome:ome-operator"
FORKED = "forked"
"""Value of `program` with which `tests/support/loaded.py` forks an operator from a loaded process. Most operators are
started like this.
"""
Manifest = dict[str, Any]
T = TypeVar("T")

PATIENCE = 3 if "PYTEST_XDIST_WORKER" in os.environ else 1
"""Factor of all time limits. Two suites on one machine slow each other down, and a long limit costs nothing if the test
passes.
"""
KINDS = {
    "EndpointSlice": ("apis/discovery.k8s.io/v1", "endpointslices"),
    "InferenceService": ("apis/ome.io/v1beta1", "inferenceservices"),
    "ClusterBaseModel": ("apis/ome.io/v1beta1", "clusterbasemodels"),
    "BaseModel": ("apis/ome.io/v1beta1", "basemodels"),
    "ClusterServingRuntime": ("apis/ome.io/v1beta1", "clusterservingruntimes"),
    "AcceleratorClass": ("apis/ome.io/v1beta1", "acceleratorclasses"),
    "FineTunedWeight": ("apis/ome.io/v1beta1", "finetunedweights"),
    "NodeModels": ("apis/ome.io/v1beta1", "nodemodels"),
    "NodeFaults": ("apis/ome.io/v1beta1", "nodefaults"),
    "RoleScale": ("apis/ome.io/v1beta1", "rolescales"),
    "BenchmarkJob": ("apis/ome.io/v1beta1", "benchmarkjobs"),
    "Job": ("apis/batch/v1", "jobs"),
    "StatefulSet": ("apis/apps/v1", "statefulsets"),
    "Deployment": ("apis/apps/v1", "deployments"),
    "ReplicaSet": ("apis/apps/v1", "replicasets"),
    "ControllerRevision": ("apis/apps/v1", "controllerrevisions"),
    "Service": ("api/v1", "services"),
    "Pod": ("api/v1", "pods"),
    "Node": ("api/v1", "nodes"),
    "Event": ("api/v1", "events"),
    "Namespace": ("api/v1", "namespaces"),
    "ConfigMap": ("api/v1", "configmaps"),
    "Secret": ("api/v1", "secrets"),
    "ServiceAccount": ("api/v1", "serviceaccounts"),
    "ResourceQuota": ("api/v1", "resourcequotas"),
    "Role": ("apis/rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": ("apis/rbac.authorization.k8s.io/v1", "rolebindings"),
    "PodDisruptionBudget": ("apis/policy/v1", "poddisruptionbudgets"),
    "HorizontalPodAutoscaler": ("apis/autoscaling/v2", "horizontalpodautoscalers"),
    "Ingress": ("apis/networking.k8s.io/v1", "ingresses"),
    "ScaledObject": ("apis/keda.sh/v1alpha1", "scaledobjects"),
    "HTTPRoute": ("apis/gateway.networking.k8s.io/v1", "httproutes"),
}
CLUSTER_WIDE = {
    "ClusterBaseModel", "ClusterServingRuntime", "AcceleratorClass", "FineTunedWeight", "NodeModels", "NodeFaults", "Node",
    "Namespace",
}  # fmt: skip
LASTING = ("BenchmarkJob", "BaseModel", "PodDisruptionBudget", "ResourceQuota")
"""Kinds whose objects, if they have no owner, cause work for operators or controllers for as long as the objects exist."""


def is_ready(body: Mapping[str, Any]) -> bool:
    """Return whether a pod or a node is Ready."""
    return any(one["type"] == "Ready" and one["status"] == "True" for one in body.get("status", {}).get("conditions", ()))


def _condition(service: Mapping[str, Any], type_: str) -> Manifest:
    conditions = service.get("status", {}).get("conditions", ())
    return next((one for one in conditions if one["type"] == type_), {})


def path(kind: str, namespace: str = "", name: str = "") -> str:
    """Return the URL path of a kind or of an object."""
    prefix, plural = KINDS[kind]
    where = "" if kind in CLUSTER_WIDE or not namespace else f"namespaces/{namespace}/"
    return f"/{prefix}/{where}{plural}" + (f"/{name}" if name else "")


def probes(request: Request) -> bool:
    """Return whether a request is one with which the operator tests its admission policies, or asks for its own user."""
    dry = "dryRun=All" in request.uri and (request.name == PROBE or request.resource == "nodes")
    read = request.verb == "get" and request.resource.startswith("validatingadmissionpolic")
    return dry or read or request.resource == "selfsubjectreviews"


def probe_state(port: int) -> str:
    """Return the state that an operator reports on its probe port; "" if it does not respond."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


class Rig:
    """A cluster with the charts and the operator."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.api = cluster.api()
        self.port = self.metrics_port = 0
        self.process = "operator"

    # --- the operator -----------------------------------------------------------------------------------------------
    def install(self, *values: str) -> None:
        """Install both charts as the demo does, with the values of a test. The chart of CRDs has no values, and is installed
        once.
        """
        crds = ["ome-crd", str(ROOT / "charts/ome-crd"), "-n", "ome", "--create-namespace"]
        if not self.api.get(path("Secret", "ome") + "?labelSelector=owner%3Dhelm,status%3Ddeployed,name%3Dome-crd")["items"]:
            self.cluster.helm("upgrade", "--install", *crds)
        chart = str(ROOT / "charts/ome-resources")
        given = [word for value in ("operator.external=true", *values) for word in ("--set", value)]
        self.cluster.helm("upgrade", "--install", "ome", chart, "-n", "ome", *given)
        self.kubeconfig = self.cluster.keep_token("ome", "ome-operator")
        for kind, (group, _) in KINDS.items():
            if group.startswith("apis/ome.io/"):
                self.wait(f"{kind} can be read", lambda kind=kind: self.is_kind_stored(kind))

    def is_kind_stored(self, kind: str) -> bool:
        """Return whether the kind can be listed. For a moment, the storage of a newly defined kind answers 429."""
        try:
            self.api.get(path(kind))
        except ApiError as error:
            if error.code in (404, 429):
                return False
            raise
        return True

    def start(
        self,
        process: str = "operator",
        *more: str,
        program: str = FORKED,
        kubeconfig: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start an operator: forked from a loaded process, or from the module of a `program`, such as "ome_operator"."""
        port, metrics = choose(2)
        words = [
            "operator", "--kubeconfig", str(kubeconfig or self.kubeconfig), "--namespace-of-lease", "ome",
            "--address", "127.0.0.1", "--health-port", str(port), "--metrics-port", str(metrics), "--bake", "1s",
            *OURS, *more,
        ]  # fmt: skip
        # A restarted process resumes its own Lease at once.
        environment = {"POD_UID": process, "PYTHONPATH": str(ROOT), **(env or {})}
        if program == FORKED:
            loaded.start(self.cluster, process, words, environment)
        else:
            self.cluster.spawn(process, [sys.executable, "-m", program, *words], environment)
        self.port, self.metrics_port = port, metrics

    def stop(self, number: int = signal.SIGTERM, process: str = "operator") -> None:
        """Stop an operator."""
        if self.cluster.process(process):
            self.cluster.stop(process, number)

    def restart(self, number: int = signal.SIGKILL, program: str = FORKED) -> None:
        """Stop the operator and start it, or another version of it, at once."""
        self.stop(number)
        self.start(program=program)

    def wait_for_leader(self) -> None:
        """Wait until the operator that was started last is the leader."""
        self.wait("the operator leads", lambda: probe_state(self.port) == "leading", 60)

    # --- objects ----------------------------------------------------------------------------------------------------
    def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """Return an object; None if it does not exist."""
        try:
            found: Manifest = self.api.get(path(kind, namespace, name))
            return found
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def all(self, kind: str, namespace: str, selector: str = "") -> list[Manifest]:
        """Return all objects of a kind in a namespace."""
        query = f"?labelSelector={selector}" if selector else ""
        items: list[Manifest] = self.api.get(path(kind, namespace) + query)["items"]
        return items

    def create(self, body: Mapping[str, Any]) -> Manifest:
        """Create an object with POST."""
        made: Manifest = self.api.request("POST", path(body["kind"], body["metadata"].get("namespace", "")), body)
        return made

    def patch(self, kind: str, namespace: str, name: str, body: Mapping[str, Any]) -> Manifest:
        """Apply a JSON merge patch."""
        done: Manifest = self.api.request("PATCH", path(kind, namespace, name), body, "application/merge-patch+json")
        return done

    def delete(self, kind: str, namespace: str, name: str, **options: Any) -> None:
        """Delete an object that may not exist."""
        try:
            self.api.request("DELETE", path(kind, namespace, name), {"propagationPolicy": "Background", **options})
        except ApiError as error:
            if error.code != 404:
                raise

    def clear(self, namespace: str) -> None:
        """Delete services and their workloads. The workloads are deleted here, because Kubernetes' garbage collector, which
        would delete them after their service, takes up to 30 s to learn that a new kind can be an owner.
        """
        for kind in ("InferenceService", "StatefulSet", "Deployment"):
            for one in self.all(kind, namespace):
                self.delete(kind, namespace, one["metadata"]["name"])

    @contextmanager
    def own_namespace(self, name: str, kind: str = "StatefulSet", seconds: float = 60) -> Iterator[str]:
        """Create a namespace, and yield its name. Afterwards, delete its services, and wait until it has no pods and no
        objects of this kind. The namespace is then deleted only if it has objects of LASTING kinds. Otherwise it stays as
        long as the cluster, because the controller-manager needs more than 60 requests to delete a namespace.
        """
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield name
        self.clear(name)
        self.wait(f"{name} empty", lambda: not self.all("Pod", name) and not self.all(kind, name), seconds)
        lasting = (one["metadata"] for lasts in LASTING for one in self.all(lasts, name))
        if any("ownerReferences" not in one for one in lasting):
            self.delete("Namespace", "", name)

    # --- waiting ----------------------------------------------------------------------------------------------------
    def wait(self, description: str, holds: Callable[[], T], seconds: float = 30.0, *, often: bool = False) -> T:
        """Poll until `holds` returns a true value, at growing intervals, and return this value. Fails with the description
        `description` after the time limit. If `often` is true, poll ten times a second, for tests in which each poll checks
        what must never happen.
        """
        began = time.monotonic()
        end = began + seconds * PATIENCE
        seen: Any = None
        while True:
            asked = time.monotonic()
            try:
                if seen := holds():
                    return seen
            except (ApiUnreachable, OSError):
                pass
            if asked >= end:
                break
            now = time.monotonic()
            time.sleep(0.1 if often else min(0.5, max(0.1, now - asked, (now - began) / 10)))
        log = self.cluster.log(self.process)
        tail = "\n".join(log.read_text().splitlines()[-15:]) if log.exists() else ""
        raise AssertionError(f"{description}: not within {seconds:.0f} s (last: {seen!r})\noperator:\n{tail}")

    def condition(self, namespace: str, name: str, type_: str) -> Manifest:
        """Return a condition of a service; {} if the service or the condition does not exist."""
        return _condition(self.get("InferenceService", namespace, name) or {}, type_)

    def ready(self, namespace: str, name: str, seconds: float = 30.0) -> Manifest:
        """Wait until the service is Ready for its current generation and all of its groups are ready. Return the service."""

        def holds() -> Manifest:
            service = self.get("InferenceService", namespace, name) or {"metadata": {}}
            one = _condition(service, "Ready")
            now = one.get("observedGeneration") == service["metadata"].get("generation")
            complete = _condition(service, "Scaled").get("status") != "False"  # a service without pods has no such condition
            return service if now and complete and one.get("status") == "True" else {}

        return self.wait(f"{namespace}/{name} Ready", holds, seconds)

    def wait_for_condition(
        self, namespace: str, name: str, type_: str, reason: str, words: str = "", seconds: float = 20.0
    ) -> Manifest:
        """Wait until the condition `type_` of a service is False and has this reason and the text `words` in its message,
        and return the condition.
        """

        def holds() -> Manifest | None:
            one = self.condition(namespace, name, type_)
            fits = one.get("reason") == reason and words in one.get("message", "")
            return one if fits and one.get("status") == "False" else None

        try:
            found = self.wait(f"{type_}={reason} ({words})", holds, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\nit says {self.condition(namespace, name, type_)}") from None
        assert found is not None
        return found

    # --- counting ---------------------------------------------------------------------------------------------------
    def requests(self, since: int) -> list[Request]:
        """Return the operator's requests since the position `since` of the audit log, without those for its Lease, those
        that ask for its user name, and those that test the admission policies.
        """
        aside = ("leases", "selfsubjectreviews")  # the operator reads these to report its own user name
        sent = [each for each in self.cluster.audit(since) if each.user == USER and each.resource not in aside]
        return [each for each in sent if not probes(each)]

    def wait_until_quiet(self, seconds: float = 2.0, limit: float = 30.0) -> None:
        """Wait until the operator has written nothing for this number of seconds."""
        mark, writes = self.cluster.audit_mark(), 0
        began = wrote = time.monotonic()
        while time.monotonic() < wrote + seconds:
            if time.monotonic() > began + limit:
                raise AssertionError(f"the operator still writes after {limit:.0f} s")
            time.sleep(0.2)
            now = sum(one.is_write for one in self.requests(mark))
            if now > writes:
                writes, wrote = now, time.monotonic()
