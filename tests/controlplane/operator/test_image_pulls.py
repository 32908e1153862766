"""Tests that Jobs pull images before rollouts on a real API server with a real Job controller, under the chart's rights and
admission policies. A kwok Stage simulates the end of their pods.
"""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from ome_local import stages
from ome_operator import keys
from ome_operator.core.render import image_pull
from ome_operator.core.render.meta import Owner
from tests.controlplane.operator.tries import APPLY, JSON, at
from tests.support import yamls
from tests.support.identity import Token
from tests.support.pulling import node
from tests.support.rig import Manifest, Rig

PULLERS = {"sidecar.istio.io/inject": "false"}
"""A label that, in these tests, only the pods of the Jobs have."""
ENGINES = f"{keys.COMPONENT}={keys.ENGINE}"
DENIED = "and create Jobs of an InferenceService that pull an image"


@pytest.fixture(scope="module")
def pulls(installed: Rig) -> Iterator[Rig]:
    """Yield the cluster with the chart's `rollout.imagePulls=2` and an operator with this option."""
    installed.stop()
    installed.install("rollout.imagePulls=2", "rollout.imagePullTimeout=60")
    installed.start("operator", "--image-pulls=2", "--image-pull-timeout=60")
    installed.wait_for_leader()
    yield installed
    installed.cluster.set_stages()
    installed.stop()
    installed.install()


@pytest.fixture
def empty(pulls: Rig, request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield a namespace of its own, and a runtime of the same name."""
    with pulls.own_namespace(f"pulls-{request.node.name.strip(']').rpartition('[')[2].replace('_', '-')[:20]}") as name:
        pulls.create(yamls.runtime(f"rt-{name}", gpus=8, router=False))
        yield name
    pulls.delete("ClusterServingRuntime", "", f"rt-{name}")
    pulls.cluster.set_stages()


def engines(rig: Rig, namespace: str) -> dict[str, str]:
    """Return the UID of each engine pod that is not terminating, and its node."""
    pods = [pod for pod in rig.all("Pod", namespace, ENGINES) if "deletionTimestamp" not in pod["metadata"]]
    return {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in pods}


def rolled_out(rig: Rig, namespace: str) -> dict[str, str]:
    conditions = (rig.get("InferenceService", namespace, "svc") or {})["status"]["conditions"]
    return next(
        ({k: one[k] for k in ("status", "reason", "message")} for one in conditions if one["type"] == "RolledOut"), {}
    )


@pytest.mark.parametrize("code", [0, 128], ids=["with-true", "without"])
def test_groups_serve_until_their_nodes_have_the_image(pulls: Rig, empty: str, code: int) -> None:
    """During a rollout, the groups of the old revision serve until the Jobs have pulled the new image onto their nodes. A
    Job whose container exits with code 128, because the image has no command `true`, also counts as a pull.
    """
    rig = pulls
    rig.cluster.set_stages(stages.ready_stage(600.0, PULLERS))
    rig.create(yamls.service(empty, "svc", f"rt-{empty}", "engine", engine={"minReplicas": 3}))
    rig.ready(empty, "svc")
    before = engines(rig, empty)
    assert len(before) == 3
    patch = {"spec": {"engineConfig": {"runner": {**yamls.container(gpus=8), "image": "engine:2"}}}}
    rig.patch("ClusterServingRuntime", "", f"rt-{empty}", patch)
    rig.wait_for_condition(empty, "svc", "RolledOut", "PullingImages", "0 of 3 images are on the nodes")
    rig.wait("two Jobs", lambda: len(rig.all("Job", empty)) == 2)
    rig.wait_until_quiet()
    jobs = rig.all("Job", empty)
    assert len(jobs) == 2 and {node(job) for job in jobs} < set(before.values())
    assert engines(rig, empty) == before, "the groups serve meanwhile"
    rig.cluster.set_stages(stages.finish_stage(PULLERS, exit_code=code))
    rig.wait("the rollout is complete", lambda: rolled_out(rig, empty).get("status") == "True", 60)
    assert set(engines(rig, empty)).isdisjoint(before)
    done = rig.all("Job", empty)
    ends = {(one["type"], one.get("reason", "")) for job in done for one in job["status"]["conditions"]}
    assert len(done) == 3 and (("Failed", "PodFailurePolicy") in ends) is (code != 0)
    service = rig.get("InferenceService", empty, "svc") or {}
    assert "could not pull" not in str(service["status"]["conditions"])
    rig.delete("InferenceService", empty, "svc")
    rig.wait("Jobs and pods are collected", lambda: not rig.all("Job", empty) and not rig.all("Pod", empty), 60)


def job() -> Manifest:
    """Return a Job as the operator makes it."""
    return image_pull.job(
        Owner("s", "default", "0"), "abc", "n", {"spec": {"containers": [{"name": "c", "image": "engine:2"}]}}, 60.0
    )


def changed(where: str, value: Any) -> Manifest:
    """Return the Job of `job` with another value in the spec of its pod. `where` is the path of the value, such as
    `containers/0/image`.
    """
    made = copy.deepcopy(job())
    spec, (*path, last) = made["spec"]["template"]["spec"], where.split("/")
    for step in path:
        spec = spec[int(step) if step.isdecimal() else step]
    spec[last] = value
    return made


def unowned() -> Manifest:
    made = job()
    return {**made, "metadata": {key: value for key, value in made["metadata"].items() if key != "ownerReferences"}}


def unlabelled() -> Manifest:
    made = job()
    return {**made, "metadata": {key: value for key, value in made["metadata"].items() if key != "labels"}}


def test_operator_token_cannot_create_other_pull_jobs(pulls: Rig) -> None:
    token = Token(pulls.kubeconfig)
    volume = [{"name": "v", "hostPath": {"path": "/"}}]
    box = {"name": "i", "image": "i"}
    bad = {
        "another command": changed("containers/0/command", ["sh"]),
        "no command": changed("containers/0/command", None),
        "arguments": changed("containers/0/args", ["-c"]),
        "a volume": changed("volumes", volume),
        "an init container": changed("initContainers", [box]),
        "a token": changed("automountServiceAccountToken", True),
        "the default token": changed("automountServiceAccountToken", None),
        "no owner": unowned(),
        "no label": unlabelled(),
    }
    for what, body in {"what the operator makes": job(), **bad}.items():
        for method, content, name in (("POST", JSON, ""), ("PATCH", APPLY, body["metadata"]["name"])):
            after = "?dryRun=All&fieldManager=test" + ("&force=true" if content == APPLY else "")
            code, said = token.send(method, at("Job", name, "default", after), body, content)
            assert (code in (200, 201)) is (what not in bad), f"{method} {what}: {code} {said[:300]}"
            assert what not in bad or DENIED in said, f"{method} {what}: {said[:300]}"
