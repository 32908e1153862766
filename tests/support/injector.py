"""A mutating admission webhook, which changes objects as other programs of a cluster do: a stand-in for service meshes,
image rewriters and policy engines.
"""

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ome_local.pki import Authority

Manifest = dict[str, Any]
TEMPLATED = ("StatefulSet", "Deployment")
"""Kinds of objects with a pod template."""
RESOURCES = (
    ("", "v1", "pods"),
    ("", "v1", "services"),
    ("apps", "v1", "statefulsets"),
    ("apps", "v1", "deployments"),
    ("policy", "v1", "poddisruptionbudgets"),
)
"""Group, version and resource of the objects that the webhook receives."""
SIDECAR = {"name": "sidecar", "image": "sidecar:1"}


def annotation(kind: str, body: Manifest) -> None:
    """Add a fixed annotation to each object."""
    body["metadata"].setdefault("annotations", {})["injected.example.com/fixed"] = "true"


def timestamp(kind: str, body: Manifest) -> None:
    """Add an annotation that differs at each write, except to pods."""
    if kind != "Pod":
        body["metadata"].setdefault("annotations", {})["injected.example.com/at"] = str(time.time_ns())


def label(kind: str, body: Manifest) -> None:
    """Add a label to each object and to each pod template."""
    for metadata in _metadata(kind, body):
        metadata.setdefault("labels", {})["injected.example.com/team"] = "serving"


def sidecar(kind: str, body: Manifest) -> None:
    """Add a container to each pod template."""
    if kind in TEMPLATED:
        _sidecar(body["spec"]["template"]["spec"])


def pod_sidecar(kind: str, body: Manifest) -> None:
    """Add a container to each pod, as service meshes do."""
    if kind == "Pod":
        _sidecar(body["spec"])


def registry(kind: str, body: Manifest) -> None:
    """Rewrite the images of pod templates to a mirror."""
    for spec in _templates(kind, body):
        for box in (*spec["containers"], *spec.get("initContainers", ())):
            box["image"] = "mirror.example.com/" + box["image"].removeprefix("mirror.example.com/")


def tolerations(kind: str, body: Manifest) -> None:
    """Replace the tolerations of pod templates, a list that the operator writes as a whole."""
    for spec in _templates(kind, body):
        spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


def hardening(kind: str, body: Manifest) -> None:
    """Set fields of the security context, and a variable, in each container of pod templates."""
    for spec in _templates(kind, body):
        spec.setdefault("securityContext", {})["seccompProfile"] = {"type": "RuntimeDefault"}
        for box in spec["containers"]:
            box.setdefault("securityContext", {})["allowPrivilegeEscalation"] = False
            variables = box.setdefault("env", [])
            if all(one["name"] != "INJECTED" for one in variables):
                variables.append({"name": "INJECTED", "value": "1"})


MODES: dict[str, Callable[[str, Manifest], None]] = {
    "annotation": annotation,
    "timestamp": timestamp,
    "label": label,
    "sidecar": sidecar,
    "pod-sidecar": pod_sidecar,
    "registry": registry,
    "tolerations": tolerations,
    "hardening": hardening,
}
"""The changes, by the path under which the webhook serves them."""


def _metadata(kind: str, body: Manifest) -> list[Manifest]:
    template = [body["spec"]["template"]["metadata"]] if kind in TEMPLATED else []
    return [body["metadata"], *template]


def _templates(kind: str, body: Manifest) -> list[Manifest]:
    return [body["spec"]["template"]["spec"]] if kind in TEMPLATED else []


def _sidecar(spec: Manifest) -> None:
    if all(box["name"] != SIDECAR["name"] for box in spec["containers"]):
        spec["containers"].append(SIDECAR)


class Injector:
    """The HTTPS server of the webhook, whose certificate is written to `folder`. It counts for each mode the stored objects
    that it has changed; dry runs do not count.
    """

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder)
        authority.server("webhook")
        self._ca = (folder / "ca.crt").read_bytes()
        self.changed = dict.fromkeys(MODES, 0)
        owner = self

        class Handler(BaseHTTPRequestHandler):
            """Answer admission reviews with a patch that replaces the parts of the object that differ."""

            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                body = json.dumps(owner.answer(self.path.partition("?")[0].strip("/"), review["request"])).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "webhook.crt", folder / "webhook.key")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)

    def answer(self, mode: str, request: Manifest) -> Manifest:
        """Return the AdmissionReview for a request."""
        old = request["object"]
        new = json.loads(json.dumps(old))
        MODES[mode](request["kind"]["kind"], new)
        patch = [
            {"op": "add", "path": f"/{part}", "value": new[part]}
            for part in ("metadata", "spec")
            if new.get(part) != old.get(part)
        ]
        self.changed[mode] += bool(patch) and not request.get("dryRun")
        response: Manifest = {"uid": request["uid"], "allowed": True}
        if patch:
            response |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}

    def configuration(self, name: str, mode: str, namespace: str) -> Manifest:
        """Return the MutatingWebhookConfiguration that sends the objects of a namespace to a mode."""
        url = f"https://127.0.0.1:{self._server.server_port}/{mode}"
        hook = {
            "name": f"{mode}.injected.example.com",
            "clientConfig": {"url": url, "caBundle": base64.b64encode(self._ca).decode()},
            "rules": [
                {"apiGroups": [group], "apiVersions": [version], "resources": [resource], "operations": ["CREATE", "UPDATE"]}
                for group, version, resource in RESOURCES
            ],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "sideEffects": "None",
            "reinvocationPolicy": "IfNeeded",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 10,
        }
        kind = "MutatingWebhookConfiguration"
        return {
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "webhooks": [hook],
        }  # fmt: skip

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, type_: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
