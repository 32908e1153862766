"""Tests of the revision that runs: pins from the command line, and a revision that never becomes ready."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from ome_local import stages
from ome_operator.cli.app import app
from ome_operator.errors import UserError
from tests.support import yamls
from tests.support.rig import Manifest, Rig


@pytest.fixture
def single(rig: Rig, namespace: str) -> Iterator[str]:
    """Yield the name of a runtime that no other test uses."""
    name = f"single-{namespace}"
    rig.create(yamls.runtime(name))
    yield name
    rig.delete("ClusterServingRuntime", "", name)


def status(rig: Rig, namespace: str) -> Manifest:
    """Return the status of the service `one`."""
    found: Manifest = (rig.get("InferenceService", namespace, "one") or {})["status"]
    return found


def ome(rig: Rig, namespace: str, *words: str) -> str:
    """Run a command as the administrator, and return its output."""
    arguments = [*words, "-n", namespace, "--kubeconfig", str(rig.cluster.kubeconfig)]
    result = CliRunner().invoke(app, arguments)
    if isinstance(result.exception, UserError):
        return f"error: {result.exception}"
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def runs(rig: Rig, namespace: str) -> list[str]:
    """Return the images of the engine pods that are not terminating."""
    pods = rig.all("Pod", namespace, "component=engine")
    return [pod["spec"]["containers"][0]["image"] for pod in pods if not pod["metadata"].get("deletionTimestamp")]


def templates(rig: Rig, namespace: str) -> list[Any]:
    """Return the pod templates of the StatefulSets."""
    return [one["spec"]["template"] for one in rig.all("StatefulSet", namespace)]


def whole(rig: Rig, namespace: str, name: str, revision: str = "") -> bool:
    """Return whether the rollout of the service is complete, and, if `revision` is given, whether that revision runs."""
    status = (rig.get("InferenceService", namespace, name) or {}).get("status", {})
    told = rig.condition(namespace, name, "RolledOut")
    return told.get("status") == "True" and revision in ("", status.get("revision"))


def test_history_undo_restart_and_pause_commands_work(rig: Rig, namespace: str, single: str) -> None:
    rig.create(yamls.service(namespace, "one", single))
    first = rig.ready(namespace, "one")["status"]["revision"]
    ome(rig, namespace, "pause", "one")
    rig.patch("InferenceService", namespace, "one", {"spec": {"engine": {"runner": {"image": "engine:2"}}}})
    rig.wait_for_condition(namespace, "one", "RolledOut", "Paused", "spec.rollout.paused")
    assert runs(rig, namespace) == ["engine:1"]
    assert "nothing is rolled out until `ome resume one" in ome(rig, namespace, "undo", "one", "--off")
    ome(rig, namespace, "resume", "one")
    rig.wait("engine:2", lambda: runs(rig, namespace) == ["engine:2"] and whole(rig, namespace, "one"), 40)
    listed = ome(rig, namespace, "history", "one").splitlines()
    assert [line.split()[:1] for line in listed] == [["NUMBER"], ["1"], ["2"]]
    assert "the oldest stored revision" in listed[1] and first in listed[1]
    assert "runs (engine 1/1, router 1/1 pods ready), wanted" in listed[2]
    assert listed[2].endswith('spec.engine.runner added: {"image": "engine:2"}')
    said = ome(rig, namespace, "undo", "one")
    assert f"is now pinned to revision {first}, which is rolled out" in said and "If the service is managed from Git" in said
    rig.wait("undone", lambda: runs(rig, namespace) == ["engine:1"] and whole(rig, namespace, "one", first), 40)
    assert re.search(rf"{first}.*pinned", ome(rig, namespace, "history", "one"))
    assert "waits" in ome(rig, namespace, "restart", "one")
    rig.wait("the restart is recorded", lambda: "spec.rollout.restartedAt added" in ome(rig, namespace, "history", "one"))
    assert runs(rig, namespace) == ["engine:1"]
    rig.patch("InferenceService", namespace, "one", {"spec": {"rollout": {"revision": "nonsense"}}})
    rig.wait_for_condition(namespace, "one", "RolledOut", "RevisionNotFound", first)
    assert runs(rig, namespace) == ["engine:1"]


def test_invalid_command_arguments_give_a_one_line_error(rig: Rig, namespace: str, single: str) -> None:
    assert f"there is no InferenceService none in namespace {namespace}. " in ome(rig, namespace, "undo", "none")
    rig.create(yamls.service(namespace, "one", single))
    rig.ready(namespace, "one")
    assert "has no revision nonsense (kept: " in ome(rig, namespace, "undo", "one", "--to", "nonsense")
    assert "has no revision to go back to" in ome(rig, namespace, "undo", "one")
    assert "has no rejected revision" in ome(rig, namespace, "retry", "one")
    assert "use only one of them" in ome(rig, namespace, "undo", "one", "--to", "x", "--off")


def test_slice_that_never_becomes_ready_is_rolled_back(rig: Rig, namespace: str, single: str) -> None:
    careful = {"onFailure": "Rollback", "readyTimeout": "4s"}
    rig.create(yamls.service(namespace, "one", single, rollout=careful))
    first = rig.ready(namespace, "one")["status"]["revision"]
    before = templates(rig, namespace)
    never = {"annotations": {stages.START_DELAY: "1h"}}
    rig.patch("InferenceService", namespace, "one", {"spec": {"engine": never}})
    rig.wait("the clock runs", lambda: status(rig, namespace).get("progress"), 30)
    rig.restart()  # some time passes while no operator runs
    rig.wait_for_condition(namespace, "one", "RolledOut", "RolledBack", "4s (spec.rollout.readyTimeout): engine 0/1", 30)
    rig.ready(namespace, "one", 40)
    assert templates(rig, namespace) == before
    rig.wait("what was rejected is gone", lambda: status(rig, namespace)["revision"] == first, 40)
    (rejected,) = status(rig, namespace)["rejected"]
    assert rejected["revision"] != first
    assert rejected["reason"] == "ProgressDeadlineExceeded" and rejected["time"]
    events = [one for one in rig.all("Event", namespace) if one["reason"] == "RolledBack"]
    assert events and "ome retry one" in events[0]["message"]
    pods = {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace, "component=engine")}
    rig.restart()
    rig.wait_for_leader()
    rig.wait_until_quiet(3)
    assert {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace, "component=engine")} == pods, "it is tried only once"
    said = ome(rig, namespace, "retry", "one")
    assert f"tries revision {rejected['revision']} again" in said
    rig.wait("tried", lambda: status(rig, namespace).get("progress"), 30)
    rig.patch("InferenceService", namespace, "one", {"spec": {"engine": {"annotations": None}}})
    rig.wait("back to the first inputs", lambda: whole(rig, namespace, "one", first), 40)
    assert "rejected" not in status(rig, namespace)


def test_runtime_edit_is_not_applied_without_auto_sync(rig: Rig, namespace: str, single: str) -> None:
    body = yamls.service(namespace, "one", single)
    body["spec"]["runtime"]["autoSync"] = False
    rig.create(body)
    first = rig.ready(namespace, "one")["status"]["revision"]
    edit = {"spec": {"engineConfig": {"runner": yamls.container(image="engine:7")}}}
    rig.patch("ClusterServingRuntime", "", single, edit)
    rig.wait("drift is told", lambda: rig.condition(namespace, "one", "RuntimeDrifted").get("status") == "True")
    said = rig.condition(namespace, "one", "RuntimeDrifted")["message"]
    assert f"still uses it as stored in revision {first}" in said
    assert len(ome(rig, namespace, "history", "one").splitlines()) == 2
    rig.cluster.kubectl("annotate", "isvc", "one", "-n", namespace, "ome.io/runtime-sync=1")
    assert f"kubectl annotate isvc one -n {namespace} ome.io/runtime-sync=" in said
    rig.wait("it is taken", lambda: runs(rig, namespace) == ["engine:7"] and whole(rig, namespace, "one"), 40)
    service = rig.get("InferenceService", namespace, "one") or {}
    assert service["status"]["lastRuntimeSyncToken"] == "1"
    assert rig.condition(namespace, "one", "RuntimeDrifted")["status"] == "False"
    back = {"spec": {"runtime": {"revision": first}}}
    rig.patch("InferenceService", namespace, "one", back)
    rig.wait("and given back", lambda: runs(rig, namespace) == ["engine:1"] and whole(rig, namespace, "one", first), 40)
