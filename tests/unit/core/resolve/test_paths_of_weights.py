"""Tests of weights whose path is a directory of the system of the nodes."""

from dataclasses import replace
from typing import Any

import pytest

from ome_operator.api import FineTunedWeight
from ome_operator.core.observed.objects import Deps, Observed
from ome_operator.core.reconcile.sync import sync
from ome_operator.core.resolve.inputs import resolve
from tests.support import parts, yamls
from tests.support.simulator import START

MESSAGE = (
    "spec.storage.path of ClusterBaseModel tiny is /etc, and /etc belongs to the operating system of the nodes: choose "
    "another directory, such as /mnt/models/tiny"
)


def deps(path: str | None = "/etc", uri: str = "hf://test/tiny", **more: Any) -> Deps:
    """Return what a service refers to. Its model has this path."""
    storage = {"storageUri": uri, **({"path": path} if path else {})}
    return parts.deps(parts.model(storage=storage), parts.simple(router=False), **more)


def test_new_service_with_system_path_is_refused_with_a_remedy() -> None:
    plan = sync(parts.service(engine={}), deps(), Observed(), START)
    (ready,) = [one for one in plan.status["conditions"] if one["type"] == "ModelReady"]
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "InvalidModel", MESSAGE)
    assert not plan.apply and not plan.create


@pytest.mark.parametrize(
    ("path", "uri", "refused"),
    [
        (None, "local:///usr/lib/tiny", True),
        ("/var/lib", "hf://test/tiny", True),
        ("/var/lib/ome/models/tiny", "hf://test/tiny", False),
        ("/root", "hf://test/tiny", True),
        ("/root/.cache/huggingface/tiny", "hf://test/tiny", False),
        ("/usr", "pvc://claim/tiny", False),
    ],
)
def test_path_on_the_node_is_checked(path: str | None, uri: str, refused: bool) -> None:
    found = resolve(parts.service(engine={}), deps(path, uri))
    assert ([one.reason for one in found.problems] == ["InvalidModel"]) is refused
    assert (found.inputs is None) is refused


def test_system_path_that_a_service_already_mounts_stays_allowed() -> None:
    """A path of weights that a service already mounts stays usable, although it is refused for new services. An earlier
    version accepted the path.
    """
    inputs = resolve(parts.service(engine={}), deps("/mnt/models/tiny")).inputs
    assert inputs is not None
    for kept, refused in (
        ({}, True),
        ({"r1": inputs}, True),
        ({"r1": {**inputs, "model": {**inputs["model"], "path": "/etc"}}}, False),
    ):
        found = resolve(parts.service(engine={"labels": {"a": "b"}}), deps(), kept)
        assert bool(found.problems) is refused


def test_system_path_of_fine_tuned_weights_is_refused() -> None:
    base = {
        "baseModelRef": {"name": "tiny"},
        "modelType": "LoRA",
        "storage": {"storageUri": "hf://a/b", "path": "/etc/poet"},
    }
    weight = parts.ensure_valid(
        FineTunedWeight.parse({**yamls.model(), "kind": "FineTunedWeight", "metadata": {"name": "poet"}, "spec": base})
    )
    known = replace(deps("/mnt/models/tiny"), weights={"poet": weight})
    found = resolve(parts.service(model={"name": "tiny", "fineTunedWeights": ["poet"]}, engine={}), known)
    assert [one.message.partition(",")[0] for one in found.problems] == [
        "spec.storage.path of FineTunedWeight poet is /etc/poet"
    ]
