"""Tests of `ome preflight`: exit codes, output formats, invalid input, and a message for every failure."""

import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from ome_operator import keys
from ome_operator.api import InferenceService, Runtime
from ome_operator.cli import connect
from ome_operator.cli.app import app
from ome_operator.cli.live import preflight
from ome_operator.describe.outcome import compute_outcome
from ome_operator.errors import UserError
from ome_operator.kube import errors
from tests.support import bodies, parts, yamls
from tests.support.looked import Looked, Manifest, Play, ended, healthy, status, unplaced
from tests.unit.describe.test_preflight import DOWN

BOX = {"name": "ome-container", "image": "engine:1", "args": ["--port=30000"]}


def engine(**more: Any) -> Manifest:
    return {"runner": {**BOX, **more}, "worker": {"size": 1}}


def runtime() -> Manifest:
    spec = {"engineConfig": engine(), "decoderConfig": engine()}
    return {"apiVersion": yamls.API, "kind": "ClusterServingRuntime", "metadata": {"name": "rt"}, "spec": spec}


def service(**more: Any) -> Manifest:
    spec = {"model": {"name": "tiny"}, "runtime": {"name": "rt"}, "engine": {}, "decoder": {}, **more}
    metadata = {"name": "svc", "namespace": "team"}
    return {"apiVersion": yamls.API, "kind": "InferenceService", "metadata": metadata, "spec": spec}


def node(name: str, **more: Any) -> Manifest:
    """Return a node with 8 GPUs that has the model."""
    made = bodies.node(name, **more)
    return {**made, "metadata": {**made["metadata"], "labels": yamls.READY}}


NODES = [node("gpu-0"), node("gpu-1")]
CATALOG = {"ClusterBaseModel": [yamls.model("tiny")], "ClusterServingRuntime": [runtime()], "Node": NODES}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "PAUSE", 0)
    monkeypatch.setattr(preflight, "REMOVAL", 0.2)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the path of a file with a service whose model and runtime are in the cluster."""
    path = tmp_path / "service.yaml"
    path.write_text(yaml.safe_dump(service(engine={"minReplicas": 2})))
    return path


def ome(monkeypatch: pytest.MonkeyPatch, api: Looked, *words: object) -> Result:
    """Return the result of the command, after a check that no object is left."""

    @asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[Looked]:
        yield api

    monkeypatch.setattr(connect, "open_client", opened)
    result = CliRunner().invoke(app, ["preflight", *map(str, words)])
    assert api.made == {}
    return result


def cluster(play: Play = healthy, **answers: Any) -> Looked:
    return Looked(play, {**CATALOG, "InferenceService": [service()]}, **answers)


def found(pod: Manifest, looks: int) -> Manifest:
    return ended(f"gpu-{pod['metadata']['name'][-1]}", DOWN)


def refused(result: Result) -> str:
    """Return the message with which the command refused."""
    assert isinstance(result.exception, UserError) and result.exception.exit_code == 2, result.output
    return str(result.exception)


def test_preflight_of_a_file_checks_all_groups(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    api = cluster()
    result = ome(monkeypatch, api, "-f", file)
    assert (result.exit_code, result.exception is None or isinstance(result.exception, SystemExit)) == (0, True)
    assert result.stdout.startswith("6 ranks on 2 nodes: nothing found in ")
    assert sum(body["kind"] == "Pod" for body in api.ever) == 6, "two prefill groups, and one decode group"
    assert {body["metadata"]["namespace"] for body in api.ever} == {"team"}


@pytest.mark.parametrize("play", [healthy, found])
def test_unusable_services_are_named_and_the_others_are_checked(
    monkeypatch: pytest.MonkeyPatch, file: Path, play: Play
) -> None:
    good = service()
    typo = {**service(modle={}), "metadata": {"name": "typo", "namespace": "team"}}
    lost = {**service(runtime={"name": "no"}), "metadata": {"name": "lost", "namespace": "team"}}
    file.write_text(yaml.safe_dump_all([typo, lost, good]))
    api = cluster(play)
    result = ome(monkeypatch, api, "-f", file)
    message = refused(result)
    assert "InferenceService team/typo: spec.modle " in message and "ClusterServingRuntime no does not exist" in message
    assert "The other services were checked as if the files did not contain them" in message
    assert result.stdout.startswith("4 ranks on 2 nodes: nothing found") == (play is healthy), result.stdout
    file.write_text(yaml.safe_dump_all([typo, lost]))
    assert "The other services" not in refused(ome(monkeypatch, cluster(play), "-f", file))


def test_preflight_of_an_existing_service_checks_one_additional_group(monkeypatch: pytest.MonkeyPatch) -> None:
    api = cluster()
    result = ome(monkeypatch, api, "svc", "-n", "team", "--role", "decode")
    assert result.exit_code == 0 and result.stdout.startswith("2 ranks on 2 nodes: nothing found in ")
    names = [body["metadata"]["name"] for body in api.ever if body["kind"] == "Pod"]
    assert len(names) == 2 and all("-decoder-0-" in name for name in names)


def test_preflight_command_prints_findings_and_totals(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    result = ome(monkeypatch, cluster(found), "-f", file)
    assert result.exit_code == 1
    assert "prefill group 1, rank 1 on node gpu-1: links: port 1 of mlx5_2 is DOWN (Disabled)" in result.stdout
    assert "decode, rank 1 on node gpu-1: links" in result.stdout and "6 ranks on 2 nodes: 3 findings" in result.stdout


def test_preflight_command_writes_json(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    result = ome(monkeypatch, cluster(found), "-f", file, "--role", "decode", "-o", "json")
    said = json.loads(result.stdout)
    assert result.exit_code == 1 and said.pop("seconds") >= 0
    finding = {"service": "team/svc", "role": "decode", "group": 0, "rank": 1, "node": "gpu-1", "check": "links"}
    finding |= {"cause": DOWN["said"], "fix": DOWN["fix"]}
    assert said == {"ranks": 2, "looked": 2, "nodes": ["gpu-0", "gpu-1"], "findings": [finding], "missed": []}


def test_preflight_command_reports_ranks_without_result(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    monkeypatch.setattr(preflight, "SLACK", -10_000)

    def play(pod: Manifest, looks: int) -> Manifest:
        return unplaced() if pod["metadata"]["name"].endswith("-w-1") else ended("gpu-0")

    result = ome(monkeypatch, cluster(play), "svc", "-n", "team", "--timeout", "10")
    assert result.exit_code == 2, "not everything was checked"
    assert "prefill, rank 1 has no node: Unschedulable: 0/24 nodes are available" in result.stdout
    assert "kubectl annotate isvc svc -n team --overwrite ome.io/preflight=Warn" in result.stdout
    result = ome(monkeypatch, cluster(play), "-f", file, "--timeout", "10", "-o", "json")
    assert result.exit_code == 2 and [each["rank"] for each in json.loads(result.stdout)["missed"]] == [1, 1, 1]


def test_preflight_uses_the_stored_templates_of_the_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check on demand uses the templates that the service's revision stores, even if this version would
    create others.
    """
    body = {**service(), "metadata": {**service()["metadata"], "uid": "u"}}
    parsed = parts.ensure_valid(InferenceService.parse(body)), parts.ensure_valid(Runtime.parse(runtime()))
    made = compute_outcome(parsed[0], parts.deps(parts.model(), parsed[1]))
    (stored,) = [each for each in made.manifests if each["kind"] == "ControllerRevision"]
    older = json.loads(json.dumps(stored).replace("engine:1", "engine:0"))
    older["data"]["inputs"] = stored["data"]["inputs"]
    api = cluster()
    api.catalog |= {"ControllerRevision": [older], "InferenceService": [body]}
    assert ome(monkeypatch, api, "team/svc").exit_code == 0
    images = {pod["spec"]["containers"][0]["image"] for pod in api.ever if pod["kind"] == "Pod"}
    assert images == {"engine:0"}


def test_preflight_checks_a_service_scaled_to_zero(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "zero.yaml"
    path.write_text(yaml.safe_dump(service(engine={"minReplicas": 0, "maxReplicas": 2}, decoder=None)))
    assert ome(monkeypatch, cluster(), "-f", path).stdout.startswith("2 ranks on 2 nodes")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[", "cannot be read"),
        ("", "no object of this operator"),
        ("- 1\n", "no object of this operator"),
        (yaml.safe_dump(runtime()), "these files contain no InferenceService"),
        (yaml.safe_dump({**service(), "spec": 7}), "team/svc|svc in namespace team cannot be read"),
        (yaml.safe_dump(service(runtime={"name": "none"})), "runtime none|ServingRuntime none"),
        (yaml.safe_dump(service(model={"name": "none"})), "none"),
    ],
)
def test_file_without_a_service_is_refused(text: str, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    api = cluster()
    said = refused(ome(monkeypatch, api, "-f", path))
    assert any(word in said for word in words.split("|")), said
    assert api.ever == []


def test_preflight_of_a_nonexistent_service_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    said = refused(ome(monkeypatch, cluster(), "nobody", "-n", "team"))
    assert said.startswith("there is no InferenceService nobody in namespace team")


def test_preflight_of_a_nonexistent_role_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(service(decoder=None)))
    assert refused(ome(monkeypatch, cluster(), "-f", path, "--role", "decode")) == (
        "team/svc has no such role: set --role to one of engine"
    )


def test_preflight_accepts_either_a_service_or_files(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    for words in ((), ("svc", "-f", file)):
        assert "name either a SERVICE" in refused(ome(monkeypatch, cluster(), *words))
    assert "`ome preflight -f isvc.yaml` reads it" in refused(ome(monkeypatch, cluster(), "isvc.yaml"))
    assert ome(monkeypatch, cluster(), "svc", "--timeout", "0").exit_code == 2


def test_preflight_command_reports_missing_permission(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    words = 'pods is forbidden: User "u" cannot create resource "pods" in API group "" in the namespace "team"'
    said = refused(ome(monkeypatch, cluster(create_to_Pod=errors.Forbidden(words)), "-f", file))
    assert 'cannot create resource "pods"' in said


def test_missing_permission_to_read_a_runtime_is_reported(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """A user who may not read the runtime gets a message about the missing right, and not the message that the runtime does
    not exist.
    """
    words = 'clusterservingruntimes.ome.io is forbidden: User "u" cannot list resource "clusterservingruntimes"'
    api = cluster(list_objects_to_ClusterServingRuntime=errors.Forbidden(words))
    assert "cannot list resource" in refused(ome(monkeypatch, api, "-f", file)) and api.ever == []
    nodes = cluster(list_objects_to_Node=errors.Forbidden("nodes is forbidden"))
    assert ome(monkeypatch, nodes, "-f", file).exit_code == 0, "no right on nodes is needed"


def test_preflight_command_reports_image_without_python(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = ended("n", message='{"preflight":1,"failed":"the image has no python3"}')
    result = ome(monkeypatch, cluster(lambda pod, looks: bare), "svc", "-n", "team")
    assert (
        result.exit_code == 1
        and "rank 0 on node n: preflight: the check could not run: the image has no python3" in result.stdout
    )


def test_interrupted_run_exits_with_the_signal_code(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):

        def play(pod: Manifest, looks: int, number: int = number) -> Manifest:
            if looks == 2:
                os.kill(os.getpid(), number)
            return status("n")

        result = ome(monkeypatch, cluster(play), "-f", file)
        assert result.exit_code == code and result.stdout == ""


def test_every_created_object_has_the_run_label(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    api = cluster()
    ome(monkeypatch, api, "-f", file)
    assert len({body["metadata"]["labels"][keys.PREFLIGHT_RUN] for body in api.ever}) == 1
