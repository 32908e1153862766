"""Tests of `ome fit` with a fake API server."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ome_operator.cli import connect
from ome_operator.cli.app import app
from ome_operator.core.observed.objects import Observed
from ome_operator.core.reconcile.sync import sync
from ome_operator.errors import QuestionUnanswered
from ome_operator.kube.errors import Forbidden
from tests.support import bodies, parts, yamls
from tests.support.fake_api import FakeApi
from tests.support.simulator import START

GPUS = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}


def pod(node: str, namespace: str = "other", service: str = "", phase: str = "Running") -> dict[str, Any]:
    """Return a pod that holds all GPUs of a node."""
    labels = {"ome.io/managed-by": "ome-operator", "ome.io/inferenceservice": service} if service else {}
    metadata = {"name": f"{service}-{node}", "namespace": namespace, "uid": f"{namespace}-{node}", "labels": labels}
    return {"metadata": metadata, "spec": {**GPUS, "nodeName": node}, "status": {"phase": phase}}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the objects of a cluster by kind: three nodes with eight GPUs each that have the model, the model, and a
    runtime.
    """
    nodes = [bodies.node(f"n{number}") for number in range(3)]
    for body in nodes:
        body["metadata"].setdefault("labels", {}).update(yamls.READY)
    box = {"name": "ome-container", "image": "engine:1", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    runtime = yamls.runtime("rt")
    runtime["spec"]["engineConfig"] = {"runner": box}
    answers: dict[str, Any] = {"Node": nodes, "ClusterBaseModel": [yamls.model("tiny")], "ClusterServingRuntime": [runtime]}
    api = FakeApi({"list_objects": lambda call: answers.get(call.kind, [])})

    @asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[FakeApi]:
        yield api

    monkeypatch.setattr(connect, "open_client", opened)
    return answers


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Return the path of a file with a service of two groups, each of which has one pod with eight GPUs."""
    service = {
        "apiVersion": yamls.API, "kind": "InferenceService", "metadata": {"name": "svc", "namespace": "team"},
        "spec": {"model": {"name": "tiny"}, "runtime": {"name": "rt"}, "engine": {"minReplicas": 2}},
    }  # fmt: skip
    path = tmp_path / "service.yaml"
    path.write_text(yaml.safe_dump(service))
    return str(path)


def ask(*words: str) -> tuple[int, str]:
    """Run `ome fit`, and return its exit code and output."""
    found = CliRunner().invoke(app, ["fit", "-n", "team", *words])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.exit_code, found.output


def test_fit_reports_free_nodes_for_a_service(cluster: dict[str, Any], file: str) -> None:
    cluster["Pod"] = [pod("n1"), pod("n2", phase="Succeeded")]
    assert ask("-f", file) == (0, "team/svc fits now.\n  counted: 2 groups of engine\n  engine: n0, n2\n")


def test_fit_names_the_services_that_hold_the_nodes(cluster: dict[str, Any], file: str) -> None:
    cluster["Pod"] = [pod("n0", service="big"), pod("n1")]
    code, output = ask("-f", file)
    assert code == 1
    assert "engine needs 2 nodes with 8 free GPUs: 1 is free" in output
    assert "  n0: other/big (8 GPUs)" in output
    code, output = ask("-f", file, "-o", "json")
    (found,) = json.loads(output)
    assert (code, found["fits"], found["goes"][0]["holders"]) == (1, False, [{"who": "other/big", "gpus": 8}])


def test_own_pods_of_the_service_do_not_count_as_used(cluster: dict[str, Any], file: str) -> None:
    cluster["Pod"] = [pod(f"n{number}", "team", "svc") for number in range(3)]
    assert ask("-f", file)[0] == 0


def test_role_scale_of_an_existing_service_sets_its_number_of_groups(cluster: dict[str, Any], file: str) -> None:
    """The RoleScale of an existing service determines its number of groups. The RoleScale of a deleted service of the same
    name does not count.
    """
    (written,) = yaml.safe_load_all(Path(file).read_text())
    written["spec"]["engine"]["maxReplicas"] = 9
    Path(file).write_text(yaml.safe_dump(written))
    metadata = {**written["metadata"], "uid": "u", "resourceVersion": "1"}
    cluster["InferenceService"] = [{**written, "metadata": metadata}]
    owner = {"apiVersion": yamls.API, "kind": "InferenceService", "name": "svc", "uid": "u", "controller": True}
    labels = {"ome.io/managed-by": "ome-operator", "ome.io/inferenceservice": "svc", "component": "engine"}
    about = {"name": "svc-engine", "namespace": "team", "uid": "s", "labels": labels, "ownerReferences": [owner]}
    cluster["RoleScale"] = [{"metadata": about, "spec": {"replicas": 4}}]
    code, output = ask("-f", file)
    assert code == 1 and "engine needs 4 nodes: there are 3 nodes" in output and "counted: 4 groups of engine\n" in output
    cluster["RoleScale"][0]["spec"]["replicas"] = 3
    code, output = ask("-f", file)
    assert code == 0 and "counted: 3 groups of engine\n" in output
    owner["uid"] = "former"
    assert "counted: 2 groups of engine\n" in ask("-f", file)[1]
    cluster["RoleScale"] = Forbidden("rolescales is forbidden")
    assert "counted: 2 groups of engine\n" in ask("-f", file)[1]


@pytest.mark.parametrize(
    ("by", "code"), [("by services of team: x", 1), ("by services of b: x", 0), ("by all services: x", 1)]
)
def test_avoided_nodes_are_not_counted_as_free(cluster: dict[str, Any], file: str, by: str, code: int) -> None:
    cluster["Pod"] = [pod("n0")]
    cluster["NodeFaults"] = [{"metadata": {"name": "n1"}, "status": {"avoided": by}}]
    assert ask("-f", file)[0] == code


def test_undeterminable_fit_is_an_error(cluster: dict[str, Any], file: str) -> None:
    cluster["Pod"] = Forbidden("pods is forbidden")
    with pytest.raises(QuestionUnanswered, match="pods is forbidden"):
        ask("-f", file)
    cluster["Pod"], cluster["ClusterServingRuntime"] = [], []
    with pytest.raises(QuestionUnanswered, match="team/svc"):
        ask("-f", file)


def test_invalid_services_are_named_and_the_others_are_checked(cluster: dict[str, Any], file: str) -> None:
    """One object that a cluster would refuse, and one service that cannot be rendered, do not hide the other answers."""
    (good,) = yaml.safe_load_all(Path(file).read_text())
    refused = {**good, "metadata": {"name": "typo", "namespace": "team"}, "spec": {**good["spec"], "modle": {}}}
    unrendered = {
        **good,
        "metadata": {"name": "lost", "namespace": "team"},
        "spec": {**good["spec"], "runtime": {"name": "no"}},
    }
    Path(file).write_text(yaml.safe_dump_all([refused, unrendered, good]))
    words = (
        "InferenceService team/typo: spec.modle .*; team/lost: ClusterServingRuntime no does not exist.*"
        "The other services were checked as if the files did not contain them"
    )
    for node, fits in (("n0", "team/svc fits now"), ("n1", "team/svc does not fit")):
        cluster["Pod"] = [*cluster.get("Pod", []), pod(node)]
        found = CliRunner().invoke(app, ["fit", "-n", "team", "-f", file])
        assert isinstance(found.exception, QuestionUnanswered) and re.match(words, str(found.exception)), found.exception
        assert fits in found.output
    Path(file).write_text(yaml.safe_dump_all([refused, unrendered]))
    with pytest.raises(QuestionUnanswered, match=r"team/typo: .*; team/lost: (?!.*The other)"):
        ask("-f", file)


@pytest.mark.parametrize("part", [{"model": {"name": "tyni"}}, {"runtime": {"name": "no"}}, {"engine": None}])
def test_fit_of_an_unstartable_edit_does_not_use_the_running_revision(
    cluster: dict[str, Any], file: str, part: dict[str, Any]
) -> None:
    """`ome fit` of an edit that cannot start reports why, and does not use the running revision of the service instead. The
    stored revision says nothing about this edit.
    """
    (written,) = yaml.safe_load_all(Path(file).read_text())
    stored = {**written, "metadata": {**written["metadata"], "uid": parts.UID, "resourceVersion": "1", "generation": 1}}
    others = [*cluster["ClusterBaseModel"], *cluster["ClusterServingRuntime"]]
    plan = sync(*parts.apply_bodies([stored, *others]), Observed(), START)
    known = next(item.manifest for item in (*plan.first, *plan.apply) if item.manifest["kind"] == "ControllerRevision")
    cluster["InferenceService"] = [stored]
    cluster["ControllerRevision"] = [{**known, "metadata": {**known["metadata"], "uid": "r", "resourceVersion": "1"}}]
    assert ask("-f", file)[0] == 0
    Path(file).write_text(yaml.safe_dump({**written, "spec": {**written["spec"], **part}}))
    with pytest.raises(QuestionUnanswered, match=r"team/svc: .*(does not exist|is missing)"):
        ask("-f", file)
