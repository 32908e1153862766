"""Tests that the commands predict for Kimi K2 on 128 simulated GPUs what the operator then does."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from ome_operator import keys
from ome_operator.cli.app import app
from ome_operator.errors import QuestionUnanswered
from tests.support.rig import OURS, ROOT, Manifest, Rig

MODEL = ROOT / "config/models/moonshotai/Kimi-K2-Instruct.yaml"
RUNTIME = ROOT / "config/runtimes/srt/kimi-k2-pd-rt.yaml"
SAMPLE = ROOT / "config/samples/isvc/moonshotai/kimi-k2-pd.yaml"
NAME = "kimi-k2-instruct"
CHILDREN = (
    "ControllerRevision", "StatefulSet", "Deployment", "Service", "ServiceAccount", "Role", "RoleBinding",
    "PodDisruptionBudget", "HorizontalPodAutoscaler", "RoleScale",
)  # fmt: skip


def ome(rig: Rig, *words: object, raises: bool = True) -> Result:
    """Run a command against the cluster."""
    arguments = [*map(str, words), "--kubeconfig", str(rig.cluster.kubeconfig)]
    return CliRunner().invoke(app, arguments, catch_exceptions=not raises)


@pytest.fixture(scope="module")
def kimi(installed: Rig) -> Iterator[Rig]:
    """Yield the cluster with the runtime. Every node has the model, and each test creates its own service."""
    rig = installed
    if not rig.cluster.process("operator"):
        rig.start()
    for node in rig.all("Node", ""):
        label = {f"models.ome.io/clusterbasemodel.{NAME}": "Ready"}
        rig.patch("Node", "", node["metadata"]["name"], {"metadata": {"labels": label}})
    rig.cluster.kubectl("apply", "-f", str(MODEL), "-f", str(RUNTIME))
    yield rig
    rig.delete("InferenceService", NAME, NAME)
    rig.wait("all gone", lambda: not rig.all("Pod", NAME), 60)


def gpu_pods(rig: Rig) -> dict[str, str]:
    """Return UID → name of the engine pods."""
    found = rig.all("Pod", NAME, "component%20in%20(engine,decoder)")
    return {one["metadata"]["uid"]: one["metadata"]["name"] for one in found}


def edited(tmp_path: Path, old: str, new: str) -> Path:
    """Return the file of the runtime with one flag replaced."""
    text, file = RUNTIME.read_text(), tmp_path / "runtime.yaml"
    assert old in text
    file.write_text(text.replace(old, new))
    return file


def forecast(result: Result) -> Any:
    """Return the only service in the output of `ome diff -o json`."""
    assert result.exit_code == 1, result.output
    (one,) = json.loads(result.stdout)["services"]
    return one


def test_predictions_of_the_commands_match_the_created_pods(kimi: Rig, tmp_path: Path) -> None:
    """The commands predict the pods of a new service, show it, and render it, and the operator creates the same. Then one
    edit restarts exactly the predicted pods, and another edit restarts none.
    """
    rig = kimi
    sample = tmp_path / "service.yaml"
    documents = list(yaml.safe_load_all(SAMPLE.read_text()))
    documents[1]["spec"]["decoder"] |= {
        "maxReplicas": 2,
        "scaleMetric": "cpu",
    }  # The service also has an autoscaler, so that every kind is covered.
    sample.write_text(yaml.safe_dump_all(documents))
    new = forecast(ome(rig, "diff", "-f", sample, "-o", "json"))
    assert new["sentence"].startswith(f"new: revision {new['after']} with prefill (1 group of 4 pods, 32 GPUs)")

    rig.cluster.kubectl("apply", "-f", str(sample))
    service = rig.ready(NAME, NAME, 60)
    assert service["status"]["revision"] == new["after"]
    same_objects_as_rendered(rig, sample, service, tmp_path)
    shown = ome(rig, "status", NAME, "-n", NAME)
    assert shown.exit_code == 0
    assert "├── ✓ decode   1/1 group, 12/12 pods, 96 GPUs\n" in shown.stdout
    by_its_printed_name = ome(rig, "status", f"{NAME}/{NAME}")
    assert by_its_printed_name.stdout == shown.stdout
    logs = ome(rig, "logs", NAME, "-n", NAME, "--role", "decode", raises=False)
    assert "are simulated, so no engine runs there and there are no logs." in str(logs.exception)
    unchanged = ome(rig, "diff", "-f", sample, "-f", RUNTIME, "-f", MODEL)
    assert (unchanged.exit_code, unchanged.stdout) == (0, "")

    before = gpu_pods(rig)
    router = edited(tmp_path, "--request-timeout-secs=600", "--request-timeout-secs=500")
    quiet = forecast(ome(rig, "diff", "-f", router, "-o", "json"))
    assert quiet["sentence"].startswith(
        "the edit makes no new revision, so no GPU pod restarts; the router's pods are replaced; "
    )
    (deployment,) = (one["before"][0] for one in quiet["changes"])
    was = rig.get("Deployment", NAME, deployment)
    rig.cluster.kubectl("apply", "-f", str(router))
    rig.wait("the router changes", lambda: generation(rig, deployment) != generation_of(was))
    assert gpu_pods(rig) == before

    flags = edited(tmp_path, "--mem-fraction-static=0.8\n", "--mem-fraction-static=0.85\n")
    loud = forecast(ome(rig, "diff", "-f", flags, "-o", "json"))
    assert (
        "restart, 128 GPUs in all, all at the same time, so the service answers no requests meanwhile. Why: runtime "
        "kimi-k2-pd-rt" in loud["sentence"]
    )
    assert "--mem-fraction-static 0.8 → 0.85" in loud["sentence"]
    rig.cluster.kubectl("apply", "-f", str(flags))
    rig.wait("the new revision", lambda: rig.condition(NAME, NAME, "Ready").get("status") == "False")
    assert rig.ready(NAME, NAME, 60)["status"]["revision"] == loud["after"]
    after = gpu_pods(rig)
    assert len(after) == 16 and not after.keys() & before.keys()


def generation(rig: Rig, deployment: str) -> Any:
    return generation_of(rig.get("Deployment", NAME, deployment))


def generation_of(one: Manifest | None) -> Any:
    return (one or {}).get("metadata", {}).get("generation")


def same_objects_as_rendered(rig: Rig, sample: Path, service: Manifest, tmp_path: Path) -> None:
    """Check that each object on the cluster has the hash of the object that `ome render` prints, apart from owner
    references: the file that is rendered does not contain the UID of the service.
    """
    documents = list(yaml.safe_load_all(sample.read_text()))
    documents[1]["metadata"]["uid"] = service["metadata"]["uid"]
    file = tmp_path / "with-uid.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    result = CliRunner().invoke(app, ["render", "-f", str(file), "--catalog", str(ROOT / "config"), OURS[0], "-o", "json"])
    assert result.exit_code == 0, result.output
    rendered = {named(one): hash_of(one) for one in json.loads(result.stdout)["items"]}
    there = [{"kind": kind, **one} for kind in CHILDREN for one in rig.all(kind, NAME, f"{keys.MANAGED_BY}={keys.MANAGER}")]
    mine = [one for one in there if one["metadata"]["ownerReferences"][0]["uid"] == service["metadata"]["uid"]]
    assert rendered == {named(one): hash_of(one) for one in mine}
    assert {kind for kind, _ in rendered} == set(CHILDREN)


def named(one: Manifest) -> tuple[str, str]:
    return one["kind"], one["metadata"]["name"]


def hash_of(one: Manifest) -> str:
    return str((one["metadata"].get("annotations") or {}).get(keys.HASH, ""))


def test_commands_report_refusals_before_the_objects_are_applied(kimi: Rig, namespace: str, tmp_path: Path) -> None:
    """The commands report an unknown field and a missing namespace before the objects are applied, as the API server would
    afterwards. The namespace may also be in the same file.
    """
    body = list(yaml.safe_load_all(SAMPLE.read_text()))[1]
    for metadata, spec, said in (
        (
            {"name": "bad", "namespace": namespace},
            {**body["spec"], "modle": {}},
            f"InferenceService {namespace}/bad: spec.modle is not a field of spec of InferenceService: write model",
        ),
        (
            {"name": "bad", "namespace": "nope"},
            body["spec"],
            "InferenceService nope/bad: namespace nope does not exist: create it, or name another",
        ),
    ):
        file = tmp_path / "bad.yaml"
        file.write_text(yaml.safe_dump({**body, "metadata": metadata, "spec": spec}))
        told = ome(kimi, "diff", "-f", file, raises=False)
        assert isinstance(told.exception, QuestionUnanswered) and str(told.exception).startswith(said)
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nope"}}
    file.write_text(yaml.safe_dump_all([space, {**body, "metadata": {"name": "good", "namespace": "nope"}}]))
    assert forecast(ome(kimi, "diff", "-f", file, "-o", "json"))["sentence"].startswith("new: ")


def test_explain_shows_the_cause_of_unscheduled_pods(kimi: Rig, namespace: str) -> None:
    rig = kimi
    body = list(yaml.safe_load_all(SAMPLE.read_text()))[1]
    body["metadata"] = {"name": "big", "namespace": namespace}
    body["spec"]["engine"] = {"minReplicas": 9}  # 36 nodes of 16
    rig.create(body)
    rig.wait_for_condition(namespace, "big", "EngineReady", "DoesNotFit", "prefill needs 36 nodes")
    rig.wait("the scheduler has looked", lambda: "Insufficient" in ome(rig, "explain", "big", "-n", namespace).stdout)
    told = ome(rig, "explain", "big", "-n", namespace)
    assert told.exit_code == 1
    assert told.stdout.startswith(f"✗ big in namespace {namespace} is not Ready: WaitingForNodes\n\nModelReady  ")
    assert "Insufficient nvidia.com/gpu\n" in told.stdout
    tree = ome(rig, "status", "big", "-n", namespace, "-o", "json")
    assert tree.exit_code == 1
    ((prefill, *_),) = (part["roles"] for part in json.loads(tree.stdout)[0]["slices"])
    assert (prefill["wanted"], prefill["pods"], prefill["gpus"]) == (9, 36, 288)
    assert {rank["reason"] for group in prefill["groups"] for rank in group["ranks"]} <= {
        "", "Unschedulable", "Pending", "ContainerCreating", "Starting", "NotCreated",
    }  # fmt: skip


def test_kubectl_plugin_works(kimi: Rig, namespace: str, tmp_path: Path) -> None:
    """The program `kubectl-ome` on the PATH is a plugin of kubectl. Exit codes and completion work through it."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for program in ("kubectl-ome", "kubectl_complete-ome"):  # as pip writes these scripts
        module, _, function = scripts[program].partition(":")
        (tmp_path / program).write_text(f"#!{sys.executable}\nfrom {module} import {function}\n{function}()\n")
        (tmp_path / program).chmod(0o755)
    there = kimi.cluster.environment()
    environment = {**there, "PATH": f"{tmp_path}:{there['PATH']}", "PYTHONPATH": str(ROOT)}

    def kubectl(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(kimi.cluster.program("kubectl")), *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    metadata = {"name": "plug", "namespace": namespace}
    kimi.create({"apiVersion": keys.API_VERSION, "kind": "InferenceService", "metadata": metadata, "spec": {}})
    shown = kubectl("ome", "status", "plug", "-n", namespace)
    assert shown.returncode == 1 and shown.stdout.startswith(f"✗ plug  in {namespace}\n")
    assert "\x1b" not in shown.stdout
    completed = kubectl("__complete", "ome", "status", "-n", namespace, "pl").stdout.splitlines()
    assert completed[0] == "plug" and ":4" in completed
    nothing = ome(kimi, "status", "other", "-n", namespace, raises=False)
    assert isinstance(nothing.exception, QuestionUnanswered)
    assert str(nothing.exception).startswith(f"there is no InferenceService other in namespace {namespace}. ")
