"""Tests of the checks before engines on a real node: a finding names the fault, its rank and its node, and a healthy group
has no finding.
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from ome_local import tinymodel
from ome_local.realnode.spec import NAME, PLACED
from ome_operator import keys
from tests.node.conftest import Steps
from tests.node.serving.conftest import GROUPS, ON_OUR_NODE, READY_WITHIN_S, remove
from tests.support import yamls
from tests.support.busybox import REFERENCE
from tests.support.rig import ROOT, Rig

pytestmark = [ON_OUR_NODE]
SPACE, IMAGE, TP2 = "preflight", "local/sglang-cpu:0.5.23", "kimi-k2-tiny-tp2"
PORT, MEET = 5757, 29002
GATE = "until [ -e /gate/${HOSTNAME##*-} ]; do sleep 0.2; done"
"""A command that keeps a rank from its check until a file in /gate has the rank's number as its name. The last part of a
pod's name is its rank.
"""
TOLD_WITHIN_S = 90.0
MEGABYTES = 1 << 20


class Place:
    """A namespace with a runtime of three ranks. The ranks wait at a gate (a file) until the test has caused a fault."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.gate = rig, rig.cluster.models / "gate"

    def start(self, name: str, mode: str = "Warn", ranks: str = "012", **engine: Any) -> None:
        """Create a service. The ranks in `open` do not wait at the gate."""
        shutil.rmtree(self.gate, ignore_errors=True)
        self.gate.mkdir()
        self.open(ranks)
        model = engine.pop("model", tinymodel.NAME)
        body = yamls.service(SPACE, name, "looked", "engine", model=model, engine=engine)
        body["metadata"]["annotations"] = {keys.PREFLIGHT: mode}
        self.rig.create(body)

    def open(self, ranks: str) -> None:
        """Let these ranks pass the gate."""
        for rank in ranks:
            (self.gate / rank).touch()

    def told(self, name: str, reason: str, *words: str) -> str:
        """Wait until the condition Preflight has this reason and all of these words in its message. Return the message."""

        def said() -> str:
            found = self.rig.condition(SPACE, name, "Preflight")
            message = str(found.get("message", ""))
            return message if found.get("reason") == reason and all(word in message for word in words) else ""

        return self.rig.wait(f"Preflight {reason} {words}", said, TOLD_WITHIN_S)

    def pid(self, name: str, rank: int) -> int:
        """Return the ID of a process in the pod of a rank that waits at the gate. It gives access to the network namespace
        of the pod.
        """

        def found() -> int:
            for proc in Path("/proc").glob("[0-9]*"):
                try:
                    host = (proc / "root/etc/hostname").read_text().strip()
                    mine = b"/gate/" in (proc / "cmdline").read_bytes()
                except OSError:
                    continue
                if mine and host.startswith(f"{name}-engine-") and host.endswith("-0-0" if rank == 0 else f"-w-{rank}"):
                    return int(proc.name)
            return 0

        return self.rig.wait(f"rank {rank} waits at the gate", found, TOLD_WITHIN_S)

    def inside(self, name: str, rank: int, *command: str) -> None:
        """Run a program of this machine in the network of a rank's pod."""
        subprocess.run(["nsenter", f"--target={self.pid(name, rank)}", "--net", *command], check=True, capture_output=True)

    def end(self, name: str) -> None:
        """Delete the service, and wait until no pod is left."""
        self.rig.delete("InferenceService", SPACE, name)
        self.rig.clear(SPACE)
        self.rig.wait("no pods", lambda: not self.rig.all("Pod", SPACE), 120)

    def demand(self, *words: str, **engine: Any) -> subprocess.Popen[str]:
        """Start `ome preflight` with these words, or with the file of a service."""
        self.gate.mkdir(exist_ok=True)  # the pods of the check mount it, too, but do not wait
        if not words:
            body = yamls.service(SPACE, "demand", "looked", "engine", model=tinymodel.NAME, engine=engine)
            file = self.gate / "demand.yaml"
            file.write_text(yaml.safe_dump(body))
            words = "-f", str(file), "--timeout", "10" if "nodeSelector" in engine else "120"
        command = [sys.executable, "-m", "ome_operator", "preflight", *words]
        environment = {**os.environ, "KUBECONFIG": str(self.rig.cluster.kubeconfig)}
        return subprocess.Popen(
            command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def made(self) -> list[dict[str, Any]]:
        """Return the objects that checks on demand have created and not removed."""
        return [each for kind in ("Service", "Pod") for each in self.rig.all(kind, SPACE, keys.PREFLIGHT_RUN)]

    def restarts(self) -> int:
        """Return how often the init containers with the checks have been restarted."""
        boxes = [box for pod in self.rig.all("Pod", SPACE) for box in pod["status"].get("initContainerStatuses", ())]
        return sum(int(box["restartCount"]) for box in boxes if box["name"] == keys.PREFLIGHT_CONTAINER)


@pytest.fixture(scope="module")
def place(serving: Rig) -> Iterator[Place]:
    """Yield a place in which an engine has three ranks. They run SGLang's image with enough shared memory, but only
    sleep.
    """
    serving.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    gate = {
        "name": "gate",
        "image": REFERENCE,
        "command": ["/bin/sh", "-c", GATE],
        "volumeMounts": [mounted("gate", "/gate")],
    }
    engine = yamls.container(
        image=IMAGE, imagePullPolicy="IfNotPresent", command=["/bin/sh", "-c", "exec sleep 3600", "engine"]
    )
    engine["args"] = ["--port=30000", f"--dist-init-addr=$(LWS_LEADER_ADDRESS):{PORT}"]
    engine["volumeMounts"] = [mounted("dshm", "/dev/shm")]
    config = {
        "runner": engine,
        "initContainers": [gate],
        "worker": {"size": 2},
        "terminationGracePeriodSeconds": 1,
        **PLACED,
    }
    host = {"path": "/var/lib/ome/models/gate", "type": "Directory"}
    config["volumes"] = [{"name": "gate", "hostPath": host}, memory(256)]
    spec = {"engineConfig": config}
    serving.cluster.apply(
        {"apiVersion": yamls.API, "kind": "ClusterServingRuntime", "metadata": {"name": "looked"}, "spec": spec}
    )
    yield Place(serving)
    serving.cluster.kubectl("delete", "namespace", SPACE)
    serving.cluster.kubectl("delete", "clusterservingruntime/looked")


def mounted(name: str, path: str) -> dict[str, str]:
    return {"name": name, "mountPath": path}


def memory(megabytes: int) -> dict[str, Any]:
    return {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{megabytes}Mi"}}


def test_preflight_of_a_healthy_group_reports_nothing(place: Place, steps: Steps) -> None:
    with steps.measure("three ranks of a sleeping engine with preflight, apply to Ready"):
        place.start("healthy", "Require")
        place.rig.ready(SPACE, "healthy", 120)
    assert place.rig.condition(SPACE, "healthy", "Preflight") == {} and place.restarts() == 0
    place.end("healthy")


def test_preflight_reports_a_missing_device(place: Place) -> None:
    args = ["--disaggregation-ib-device=mlx5_0"]
    place.start("device", runner={"name": keys.RUNNER, "args": args})
    said = place.told("device", "PreflightFindings", f"rank 0 on node {NAME}: devices: RDMA device mlx5_0 does not exist")
    assert "rank 2" in said
    place.rig.ready(SPACE, "device", 60)  # the mode Warn does not prevent the start
    place.end("device")


def test_preflight_reports_small_shared_memory_and_holds_all_ranks(place: Place) -> None:
    place.start("shm", "Require", volumes=[memory(16)])
    place.told("shm", "PreflightFailed", f"rank 1 on node {NAME}: shm: /dev/shm has 16 MiB, but 128 MiB are needed")
    group = place.rig.get("InferenceService", SPACE, "shm")["status"]["groups"][0]  # type: ignore[index]
    assert group["phase"] == "Preflight" and any("rank 2" in line for line in group["preflight"])
    assert place.rig.condition(SPACE, "shm", "EngineReady")["reason"] == "PreflightFailed"
    place.end("shm")


def test_preflight_reports_a_closed_port(place: Place) -> None:
    place.start("closed", "Require", ranks="")
    rule = f"add table inet closed; add chain inet closed in {{ type filter hook input priority 0; }}; " \
           f"add rule inet closed in tcp dport {PORT} drop"  # fmt: skip
    place.inside("closed", 0, "nft", rule)
    place.open("012")
    place.told(
        "closed",
        "PreflightFailed",
        f"rank 0 on node {NAME}: reach: no other rank can connect to it at port {PORT}: no answer",
    )
    place.end("closed")


def test_preflight_reports_a_slow_rank(place: Place) -> None:
    """One rank has a slow network, and the finding names it. The test slows the rank down with tbf, because some kernels
    have no netem.
    """
    place.start("slow", ranks="")
    slower = ("tbf", "rate", "40mbit", "burst", "32kb", "latency", "50ms")
    place.inside("slow", 1, "tc", "qdisc", "add", "dev", "eth0", "root", *slower)
    place.open("012")
    said = place.told("slow", "PreflightFindings", f"rank 1 on node {NAME}: copy: it sends")
    assert "rank 0" not in said and "rank 2" not in said
    place.end("slow")


def test_preflight_reports_a_truncated_weight_file(place: Place) -> None:
    cut = place.rig.cluster.models / "cut"
    shutil.rmtree(cut, ignore_errors=True)
    shutil.copytree(place.rig.cluster.models / tinymodel.NAME, cut)
    file = min(cut.glob("*.safetensors"))
    os.truncate(file, file.stat().st_size - 100)
    model = yamls.model("cut")
    model["spec"]["storage"]["path"] = "/var/lib/ome/models/cut"
    place.rig.cluster.apply(model)
    place.rig.cluster.kubectl("label", "node", NAME, "models.ome.io/clusterbasemodel.cut=Ready")
    place.start("cut", model="cut")
    place.told(
        "cut", "PreflightFindings", f"rank 0 on node {NAME}: weights: ", f"{file.name} has {file.stat().st_size:,} bytes"
    )
    place.end("cut")
    place.rig.cluster.kubectl("delete", "clusterbasemodel/cut")
    place.rig.cluster.kubectl("label", "node", NAME, "models.ome.io/clusterbasemodel.cut-")


@contextmanager
def few_files(rig: Rig, most: int) -> Iterator[None]:
    """Lower the limit of open files of containerd, and restart it afterwards. Containers that start before that restart
    inherit this limit and cannot raise it.
    """
    found = rig.cluster.process("containerd")
    assert found is not None
    resource.prlimit(found.pid, resource.RLIMIT_NOFILE, (most, most))
    try:
        yield
    finally:
        rig.cluster.restart("containerd", signal.SIGKILL)
        rig.wait("the node is Ready", lambda: ready(rig), 60)


def ready(rig: Rig) -> bool:
    """Return whether the node is Ready, which means that its kubelet has reached containerd again."""
    (node,) = [each for each in rig.all("Node", "") if each["metadata"]["name"] == NAME]
    return any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])


def test_preflight_reports_too_low_limit_of_open_files(place: Place) -> None:
    with few_files(place.rig, 2048):
        place.start("files")
        place.told("files", "PreflightFindings", f"rank 1 on node {NAME}: nofile: at most 2048 files may be open")
    place.end("files")


def test_preflight_reports_a_rank_that_never_starts(place: Place, steps: Steps) -> None:
    place.start("absent", "Require", ranks="01")
    with steps.measure("a rank that never starts, until the others say so"):
        said = place.told("absent", "PreflightFailed", f"rank 2 on node {NAME}: absent: rank 2 did not connect within")
    assert "rank 0" not in said and "rank 1 " not in said
    place.open("2")  # the checks of all ranks are repeated, and succeed
    place.rig.ready(SPACE, "absent", 300)
    assert place.rig.condition(SPACE, "absent", "Preflight") == {}
    place.end("absent")


@pytest.mark.parametrize("mode", ["Warn", "Require"])
def test_preflight_reports_image_without_python(place: Place, mode: str) -> None:
    name = f"bare-{mode.lower()}"
    runner = {"name": keys.RUNNER, "image": REFERENCE}
    place.start(name, mode, runner=runner)
    reason = "PreflightFailed" if mode == "Require" else "PreflightFindings"
    place.told(name, reason, "the check could not run: the image has no python3")
    if mode == "Warn":
        place.rig.ready(SPACE, name, 60)
    place.end(name)


def said(place: Place, running: subprocess.Popen[str], code: int) -> str:
    """Return the output of a check on demand, and check that none of its objects is left."""
    out, told = running.communicate(timeout=300)
    assert running.returncode == code and "Traceback" not in told, (out, told)
    assert place.made() == []
    return out


def test_preflight_command_on_a_healthy_group_finds_and_leaves_nothing(place: Place, steps: Steps) -> None:
    with steps.measure("ome preflight -f of three ranks"):
        assert said(place, place.demand(), 0).startswith("3 ranks on 1 node: nothing found in ")


def test_preflight_command_reports_a_missing_device(place: Place) -> None:
    args = ["--disaggregation-ib-device=mlx5_0"]
    out = said(place, place.demand(runner={"name": keys.RUNNER, "args": args}), 1)
    assert f"engine, rank 0 on node {NAME}: devices: RDMA device mlx5_0 does not exist" in out and "rank 2" in out


def test_preflight_command_reports_image_without_python(place: Place) -> None:
    out = said(place, place.demand(runner={"name": keys.RUNNER, "image": REFERENCE}), 1)
    assert "the check could not run: the image has no python3" in out


def test_preflight_command_reports_that_no_node_is_free(place: Place) -> None:
    out = said(place, place.demand(nodeSelector={"nobody": "has-this"}), 2)
    assert "engine, ranks 0–2 have no node: Unschedulable: 0/" in out and "Other pods use the nodes" in out


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_preflight_command_leaves_no_pods(place: Place, number: int, code: int) -> None:
    running = place.demand()
    place.rig.wait("a check runs", lambda: any(each.get("status", {}).get("phase") == "Running" for each in place.made()))
    running.send_signal(number)
    assert said(place, running, code) == ""


def test_preflight_command_does_not_affect_a_serving_service(place: Place) -> None:
    """A check on demand of a service that serves adds no pod to it, and no controller adopts the check's pods."""
    place.start("serves", "Off")
    place.rig.ready(SPACE, "serves", 120)
    before = sorted(each["metadata"]["uid"] for each in place.rig.all("Pod", SPACE))
    assert said(place, place.demand("serves", "-n", SPACE), 0).startswith("3 ranks on 1 node: nothing found in ")
    assert sorted(each["metadata"]["uid"] for each in place.rig.all("Pod", SPACE)) == before
    assert place.rig.condition(SPACE, "serves", "Ready")["status"] == "True"
    place.end("serves")


@pytest.mark.parametrize("mode", ["Off", "Require"])
def test_start_and_recycle_times_with_preflight_are_measured(serving: Rig, steps: Steps, mode: str) -> None:
    for body in yaml.safe_load_all((ROOT / GROUPS).read_text()):
        if body["kind"] == "InferenceService":
            body["metadata"]["annotations"] = {keys.PREFLIGHT: mode}
        serving.cluster.apply(body)
    with steps.measure(f"2 prefill + 2 decode (TP 2) + router, preflight {mode}, to Ready"):
        serving.ready(TP2, TP2, READY_WITHIN_S)
    assert serving.condition(TP2, TP2, "Preflight") == {}
    worker = next(pod for pod in serving.all("Pod", TP2, "component=decoder") if "-w-" in pod["metadata"]["name"])
    serving.delete("Pod", TP2, worker["metadata"]["name"])
    with steps.measure(f"recycle of its decode group, preflight {mode}, to Ready"):
        serving.wait("a group is lost", lambda: serving.condition(TP2, TP2, "Scaled").get("status") == "False", 60)
        serving.ready(TP2, TP2, READY_WITHIN_S)
    remove(serving, TP2)
