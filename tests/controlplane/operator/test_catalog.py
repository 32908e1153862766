"""Test that every file of the catalog can be applied at once without any change, and becomes ready on simulated nodes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ome_local.nodes import simulated
from ome_operator import keys, names
from ome_operator.errors import UserError
from tests.support import catalog, parts
from tests.support.rig import USER, Rig, path

NODES = 80
CONFIG = parts.ROOT / "config"
Body = dict[str, Any]


def bodies(*folders: str) -> list[Body]:
    """Return the objects of the files in directories of config."""
    files = [file for folder in folders for file in sorted((CONFIG / folder).rglob("*.yaml"))]
    return [body for file in files for body in parts.read_documents(file)]


def holds_every_model() -> dict[str, str]:
    """Return the labels that agents set on a node that has the weights of all models."""
    models = [body["metadata"]["name"] for body in bodies("models")]
    return {names.model_label("ClusterBaseModel", "", name): keys.MODEL_READY for name in models}


@pytest.fixture
def large(rig: Rig) -> Iterator[Rig]:
    """Yield the cluster with enough nodes for all samples at the same time. Every node has every model."""
    there = {node["metadata"]["name"] for node in rig.all("Node", "")}
    added = [node for node in simulated("h200", NODES) if node["metadata"]["name"] not in there]
    for node in added:
        node["metadata"]["labels"] |= holds_every_model()
        rig.create(node)
    for name in there:
        rig.patch("Node", "", name, {"metadata": {"labels": holds_every_model()}})
    yield rig
    for node in added:
        rig.delete("Node", "", node["metadata"]["name"])


def place(body: Body, name: bool = True) -> str:
    """Return the URL of an object or, if `name` is false, of the list of its kind in its namespace."""
    metadata = body["metadata"]
    return path(body["kind"], metadata.get("namespace", ""), metadata["name"] if name else "")


def test_every_catalog_sample_becomes_ready(large: Rig) -> None:
    api, rig = large.api, large
    shown = bodies("accelerators", "models", "runtimes")
    samples = [body for one in catalog.samples() for body in parts.read_documents(CONFIG / "samples/isvc" / one)]
    services = [body for body in samples if body["kind"] == "InferenceService"]
    try:
        for body in (
            *shown,
            *samples,
        ):  # Apply in the order of the files, with the strict validation of kubectl; kubectl itself would take a minute.
            api.request("POST", f"{place(body, False)}?fieldValidation=Strict", body)
        for one in services:
            found = rig.ready(one["metadata"]["namespace"], one["metadata"]["name"], 100)
            assert found["status"]["url"]
        boxes = [box for pod in rig.all("Pod", "") for box in pod["spec"]["containers"]]
        gpus = sum(int(box.get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0)) for box in boxes)
        assert len(services) > 20 and gpus > 3 * 128
        keys_of_ssh(rig)
    finally:
        for body in reversed((*shown, *services)):
            rig.delete(body["kind"], body["metadata"].get("namespace", ""), body["metadata"]["name"])
        rig.wait("all gone", lambda: not rig.all("StatefulSet", "") and not rig.all("Deployment", ""), 60)


def keys_of_ssh(rig: Rig) -> None:
    """Check that exactly one Secret exists, which has the right type and belongs to the service, and that the operator
    created it and read no Secret.
    """
    name = "kimi-k2-trtllm"
    (secret,) = rig.api.get(path("Secret", name))["items"]
    assert secret["type"] == keys.SSH_SECRET and secret["immutable"] is True
    assert set(secret["data"]) == {"ssh_host_ed25519_key", "known_hosts", "id_ed25519", "authorized_keys"}
    (owner,) = secret["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("InferenceService", name)
    asked = [one for one in rig.requests(0) if one.resource == "secrets"]
    assert {one.verb for one in asked} == {"create"} and 201 in {one.code for one in asked}, [one.uri for one in asked]
    operator = (f"--as={USER}", "-n", name)
    with pytest.raises(UserError, match="cannot list"):
        rig.cluster.kubectl(*operator, "get", "secrets")
    metadata = {key: secret["metadata"][key] for key in ("labels", "ownerReferences")} | {"name": "other"}
    other = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "immutable": True}
    with pytest.raises(UserError, match="may only create Secrets of type"):
        rig.cluster.kubectl(*operator, "create", "-f", "-", stdin=json.dumps(other))
