"""Tests of the registry sidecar as the operator renders it, with the token of the router's ServiceAccount and with pods of a
real API server.

Only the router is simulated, because pods on simulated nodes have no address that a router could reach (tests/router has a
real router).
"""

import base64
import json
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ome_local import stages
from ome_operator import keys
from tests.support import yamls
from tests.support.rig import Rig


class Router(ThreadingHTTPServer):
    """A simulated router that accepts every worker without contacting it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.workers: dict[str, dict[str, Any]] = {}

    def urls(self, kind: str) -> set[str]:
        """Return the URLs of the workers of a type."""
        return {one["url"] for one in self.workers.values() if one["worker_type"] == kind}


class Handler(BaseHTTPRequestHandler):
    """Answers GET, POST and DELETE requests for /workers."""

    server: Router

    def log_message(self, *_: Any) -> None:
        """Write no log."""

    def _answer(self, status: int, body: Any) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def do_GET(self) -> None:
        """List the workers."""
        self._answer(200, {"workers": [{"id": key, **one} for key, one in self.server.workers.items()]})

    def do_POST(self) -> None:
        """Add a worker."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.workers[str(len(self.server.workers))] = body
        self._answer(202, {})

    def do_DELETE(self) -> None:
        """Remove a worker."""
        self.server.workers.pop(self.path.rpartition("/")[2])
        self._answer(202, {})


@pytest.fixture
def router() -> Iterator[Router]:
    """Yield the router while it listens."""
    with Router() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def sidecar(rig: Rig, namespace: str, service: str) -> list[str]:
    """Return the arguments of the rendered registry container."""
    (deployment,) = rig.all("Deployment", namespace, f"{keys.SERVICE}={service}")
    (box,) = deployment["spec"]["template"]["spec"]["initContainers"]
    return [one for one in box["args"] if not one.startswith("--router=")]


def account(rig: Rig, namespace: str, name: str, folder: Path) -> Path:
    """Write the service account files that the kubelet would mount, and return their directory."""
    config = json.loads(rig.cluster.keep_token(namespace, name).read_text())
    shutil.copy(config["users"][0]["user"]["tokenFile"], folder / "token")
    authority = config["clusters"][0]["cluster"]["certificate-authority-data"]
    (folder / "ca.crt").write_bytes(base64.b64decode(authority))
    return folder


def test_registry_adds_and_removes_groups(rig: Rig, namespace: str, router: Router, tmp_path: Path) -> None:
    runtime = yamls.runtime("registered", size=2, decoder=True)
    main = runtime["spec"]["routerConfig"]["runner"]
    main["command"], main["args"] = ["python3", "-m", "sglang_router.launch_router"], ["--pd-disaggregation", "--port=8080"]
    # A real leader is ready after its ranks have joined. If it was ready before that, it is not trusted for a minute.
    rig.cluster.set_stages(stages.ready_stage(3600, {keys.WORKER_INDEX: "0"}))
    rig.create(runtime)

    def ranks() -> list[dict[str, Any]]:
        return rig.all("Pod", namespace, f"{keys.SERVICE}=seen,{keys.POD_INDEX}=1")

    try:
        rig.create(yamls.service(namespace, "seen", "registered", "engine", "decoder", "router", engine={"minReplicas": 2}))
        rig.wait("ranks run", lambda: [pod["status"]["phase"] for pod in ranks()] == ["Running"] * 3)
        rig.cluster.set_stages()
        rig.ready(namespace, "seen")
        words = sidecar(rig, namespace, "seen")
        where = account(rig, namespace, "seen-router", tmp_path)
        more = [f"--server={rig.cluster.server}", f"--account={where}", "--address=127.0.0.1", "--port=0", "--interval=0.5"]
        url = f"--router=http://127.0.0.1:{router.server_address[1]}"
        rig.cluster.spawn("registry", [sys.executable, "-m", "ome_operator", *words, url, *more])

        def listed(component: str) -> set[str]:
            leaders = rig.all("Pod", namespace, f"component={component},{keys.WORKER_INDEX}=0")
            return {f"http://{one['status']['podIP']}:30000" for one in leaders}

        engines, decoders = listed("engine"), listed("decoder")
        assert len(engines) == 2 and len(decoders) == 1
        rig.wait("all listed", lambda: (router.urls("prefill"), router.urls("decode")) == (engines, decoders), 10)
        assert {one.get("bootstrap_port") for one in router.workers.values()} == {8998, None}

        def leader(group: str) -> dict[str, Any]:
            (one,) = rig.all("Pod", namespace, f"component=engine,{keys.WORKER_INDEX}=0,{keys.GROUP_INDEX}={group}")
            return one

        ends = f"http://{leader('1')['status']['podIP']}:30000"
        rig.patch("InferenceService", namespace, "seen", {"spec": {"engine": {"minReplicas": 1}}})
        rig.wait("a group that is to go is out", lambda: ends not in router.urls("prefill"), 10)
        assert "deletionTimestamp" not in leader("1")["metadata"], "it is removed before its leader is stopped"

        lost = f"http://{leader('0')['status']['podIP']}:30000"
        (rank,) = rig.all("Pod", namespace, f"component=engine,{keys.GROUP_INDEX}=0,{keys.POD_INDEX}=1")
        rig.delete("Pod", namespace, rank["metadata"]["name"])
        rig.wait("a group that lost a rank is out", lambda: lost not in router.urls("prefill"), 10)
        assert router.urls("decode") == decoders
    finally:
        rig.cluster.set_stages()
        if rig.cluster.process("registry"):
            rig.cluster.stop("registry", signal.SIGKILL)  # on SIGTERM it would wait for the router
        rig.delete("InferenceService", namespace, "seen")
        rig.delete("ClusterServingRuntime", "", "registered")
