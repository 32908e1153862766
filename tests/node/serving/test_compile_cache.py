"""Tests of compile caches on the real node: the kubelet makes the directory, the agent of the chart answers in it, and the
second start of an engine has what the first one compiled.

The engine stands for SGLang: it runs in SGLang's image, as another user than root and with a read-only root file system.
It "compiles" a library if there is none, and then answers probes. SGLang itself compiles nothing on this machine: the image
has no compiler, and `--enable-torch-compile` of SGLang 0.5.23 needs the attention backend `intel_amx`.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ome_local.images import build
from ome_local.realnode.spec import NAME, PLACED
from ome_operator import keys
from tests.node.conftest import Steps
from tests.node.serving.conftest import ON_OUR_NODE, READY_WITHIN_S
from tests.node.serving.test_agent import CHART, PRIVILEGED, agents
from tests.support import yamls
from tests.support.rig import Rig

pytestmark = [ON_OUR_NODE]
SERVICE = SPACE = "compiled"
ENGINE = """\
import http.server, os, pathlib, sys, time
library = pathlib.Path(os.environ["SGLANG_CACHE_DIR"], "inductor/ab/k.so")
if library.exists():
    print("found", library.read_text(), flush=True)
else:
    time.sleep(5)
    library.parent.mkdir(parents=True)
    library.write_text(os.environ["POD_NAME"])
    print("compiled", flush=True)
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("", 30000), Health).serve_forever()
"""
NOTHING_YET = (
    "no compile cache: no agent of this node keeps compile caches of this engine yet (No such file or directory)\n",
    "no compile cache: the node has no sealed compile cache of this engine yet\n",
)
"""What the init container prints in the first start: the agent may find the new directory before or after it."""
RESTRICTED = {
    "runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532, "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
}  # fmt: skip


@pytest.fixture
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory of this machine, which is also on its node."""
    return tmp_path_factory.mktemp("compile-caches")


@pytest.fixture
def cached(serving: Rig, disk: Path, steps: Steps) -> Iterator[Rig]:
    """Install the chart with agents that keep compile caches."""
    serving.cluster.load_image(build.build(["agent"])["agent"])
    repository, _, tag = build.REFERENCES["agent"].rpartition(":")
    values = {
        "enabled": True, "image": {"repository": repository, "tag": tag}, "roots": [str(disk)], "compileCacheGB": 1,
        "nodeSelector": PLACED["nodeSelector"],
    }  # fmt: skip
    serving.cluster.kubectl("label", "namespace", "ome", "--overwrite", f"{PRIVILEGED}=privileged")
    with steps.measure("helm upgrade with agents and compile caches"):
        serving.cluster.helm(*CHART, "--set-json", f"agent={json.dumps(values)}")
    yield serving
    serving.cluster.helm(*CHART, "--set", "agent.enabled=false", "--set", "agent.compileCacheGB=0")
    serving.wait("no agent", lambda: not agents(serving), 60)
    serving.cluster.kubectl("label", "namespace", "ome", "--overwrite", f"{PRIVILEGED}=restricted")


def with_digest(rig: Rig) -> str:
    """Return the name of SGLang's image with its digest, by which the node knows the image, too."""
    name = build.REFERENCES["engine-cpu"]
    status: dict[str, Any] = (rig.get("Node", "", NAME) or {})["status"]
    assert status
    node = rig.cluster.node
    ctr = ("ctr", "--address", str(node.socket), "--namespace", "k8s.io", "images")
    listed = subprocess.run([*ctr, "ls", f"name==docker.io/{name}"], check=True, capture_output=True, text=True).stdout
    digest = next(word for word in listed.split() if word.startswith("sha256:"))
    known = f"{name.rpartition(':')[0]}@{digest}"
    subprocess.run([*ctr, "tag", "--force", f"docker.io/{name}", f"docker.io/{known}"], check=True, capture_output=True)
    return known


def runtime(image: str) -> dict[str, Any]:
    """Return the runtime of the engine."""
    runner = {
        "name": "ome-container",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", ENGINE, "sglang.launch_server"],
        "ports": [{"name": "http", "containerPort": 30000}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": 30000}, "periodSeconds": 1},
        "securityContext": RESTRICTED,
    }
    made = yamls.runtime(SERVICE, router=False)
    made["spec"]["engineConfig"] = {"runner": runner, "terminationGracePeriodSeconds": 1, **PLACED}
    return made


def log(rig: Rig, container: str) -> str:
    """Return the log of a container of the only pod."""
    (pod,) = rig.all("Pod", SPACE)
    text: str = rig.cluster.kubectl("logs", "-n", SPACE, pod["metadata"]["name"], "-c", container)
    return text


@pytest.mark.timeout(2 * READY_WITHIN_S + 240, func_only=True)
def test_second_start_loads_the_compile_cache_of_the_first(cached: Rig, disk: Path, steps: Steps) -> None:
    made = yamls.service(SPACE, SERVICE, SERVICE, "engine", model="kimi-k2-tiny")
    made["metadata"]["annotations"] = {keys.COMPILE_CACHE: "true"}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
    cached.cluster.apply(space, runtime(with_digest(cached)))
    try:
        with steps.measure("compile cache: the first start"):
            cached.create(made)
            cached.ready(SPACE, SERVICE, READY_WITHIN_S)
        (first,) = (pod["metadata"]["name"] for pod in cached.all("Pod", SPACE))
        assert log(cached, keys.COMPILE_CACHE_CONTAINER) in NOTHING_YET
        sealed = "compile cache: sealed 1 files"
        cached.wait("sealed", lambda: sealed in log(cached, keys.COMPILE_CACHE_SIDECAR), 120)
        assert list(disk.glob(f".namespaces/{SPACE}/.compile/*/*.cache"))
        cached.delete("Pod", SPACE, first)
        with steps.measure("compile cache: the second start"):
            cached.wait("it ended", lambda: first_gone(cached), 120)
            cached.ready(SPACE, SERVICE, READY_WITHIN_S)
        assert log(cached, keys.COMPILE_CACHE_CONTAINER).startswith("compile cache: copied 1 files")
        assert log(cached, "ome-container").startswith(f"found {first}\n")
    finally:
        cached.delete("InferenceService", SPACE, SERVICE)
        cached.wait("no pods", lambda: not cached.all("Pod", SPACE), 120)
        cached.delete("ClusterServingRuntime", "", SERVICE)


def first_gone(rig: Rig) -> bool:
    """Return whether the pod was replaced: its engine has found or compiled something, and it is not being deleted."""
    pods = rig.all("Pod", SPACE)
    return len(pods) == 1 and "deletionTimestamp" not in pods[0]["metadata"] and "found" in log_or_none(rig)


def log_or_none(rig: Rig) -> str:
    """Return the log of the engine; "" while it has none."""
    try:
        return log(rig, "ome-container")
    except Exception:
        return ""
