"""Tests of real agents on simulated nodes with their own tokens: from a model on a hub to labels and status."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ome_local.stages import START_DELAY
from ome_operator import names
from tests.support import hasty_agent, parts, yamls
from tests.support import hub as hubs
from tests.support.identity import Token, agent
from tests.support.rig import ROOT, Rig

URI = "hf://org/model"
LABEL = "models.ome.io/clusterbasemodel.fetched"
RECORDS = "/apis/ome.io/v1beta1/nodemodels"


@pytest.fixture(scope="module")
def agents(installed: Rig) -> Iterator[Rig]:
    """Yield the cluster with the agents of the chart. Their pods are simulated; the tests run the agents, with tokens
    that are bound to these pods.
    """
    chart = ("upgrade", "ome", str(ROOT / "charts/ome-resources"), "-n", "ome", "--set", "operator.external=true")
    image = ("--set", "agent.image.repository=registry.example.com/ome-agent")
    installed.cluster.helm(*chart, "--set", "agent.enabled=true", *image)
    installed.stop()
    installed.start("operator", "--model-agent", "--agent-root=/mnt/models")
    yield installed
    installed.stop()
    installed.cluster.helm(*chart)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[hubs.Hub]:
    """Yield a hub with TLS, because agents send no token without encryption."""
    context = hubs.certificate(tmp_path / "tls")
    with hubs.served(hubs.Hub(hubs.model(1, [2_000_000, 300_000]), token="hf_very-secret"), tls=context) as one:
        yield one


def start(rig: Rig, node: str, folder: Path, hub: hubs.Hub, *more: str, program: str = "ome_operator") -> None:
    """Start an agent of this node with its own disk and with the hub's token in a mounted Secret. `program` is its Python
    module.
    """
    secret = folder / "secrets" / "hub"
    secret.mkdir(parents=True)
    (secret / "token").write_text(hub.token)
    argv = [
        sys.executable, "-m", program, "agent", "--node", node, "--root", str(folder / "disk"),
        "--endpoint", hub.url, "--secrets", str(secret.parent), "--kubeconfig", str(agent(rig, node, folder)),
        "--secret", json.dumps({"name": "hub", "hosts": ["127.0.0.1"]}),
        "--private-host", "127.0.0.1", "--private-host", "localhost",
        "--address", "127.0.0.1", "--port", "0", "--log-level", "DEBUG", *more,
    ]  # fmt: skip
    rig.cluster.spawn(f"agent-{node}", argv, {"SSL_CERT_FILE": str(folder / "tls" / "ca.crt")})


def storage(uri: str, path: Path, node: str) -> dict[str, Any]:
    """Return a storage spec for one node, with files from the hub that requires a token."""
    return {"storageUri": uri, "path": str(path), "key": "hub", "nodeSelector": {"kubernetes.io/hostname": node}}


def whole(model: dict[str, Any]) -> str:
    """Return the label of a node that has the complete revision of the model."""
    return names.whole_label(LABEL, parts.digest(model))


def labels(rig: Rig, node: str) -> dict[str, str]:
    """Return the labels of a node that concern the model of these tests."""
    found = rig.get("Node", "", node) or {}
    return {key: value for key, value in found["metadata"]["labels"].items() if key.startswith(LABEL)}


def test_agent_downloads_a_model_and_labels_its_node(
    agents: Rig, rig: Rig, namespace: str, tmp_path: Path, hub: hubs.Hub
) -> None:
    node, other = (one["metadata"]["name"] for one in rig.all("Node", "")[:2])
    path = str(tmp_path / "disk" / "fetched")
    model = yamls.model("fetched", URI)
    model["spec"]["storage"] = storage(URI, Path(path), node)
    hub.rate = 400_000
    rig.create(model)
    try:
        start(rig, node, tmp_path, hub)

        def said(words: str) -> bool:
            status = (rig.get("ClusterBaseModel", "", "fetched") or {}).get("status", {})
            return words in json.dumps(status)

        rig.wait("Downloading", lambda: said("Downloading") and said("0/1 nodes") and said(hubs.COMMIT))
        rig.wait("Updating", lambda: labels(rig, node) == {LABEL: "Updating"})
        rig.wait("both labels", lambda: labels(rig, node) == {LABEL: "Ready", whole(model): "Ready"})
        rig.wait("1/1 nodes", lambda: said("1/1 nodes") and said("OnNodes") and said("DeepseekV3ForCausalLM"))
        for name, data in hub.files.items():
            assert (Path(path) / name).read_bytes() == data
        assert labels(rig, other) == {}
        only_its_own_record(rig, node, other, tmp_path)
        nothing_tells_the_token(rig, node, hub.token)
        only_these_labels(rig, node)
        pods_mount_the_revision(rig, namespace, node, model)
        (record,) = [one for one in rig.api.get(RECORDS)["items"] if one["metadata"]["name"] == node]
        assert record["metadata"]["ownerReferences"][0]["name"] == node
    finally:
        rig.stop(process=f"agent-{node}")
        rig.delete("ClusterBaseModel", "", "fetched")
        rig.api.request("DELETE", f"{RECORDS}/{node}")


def test_agent_prefetches_the_weights_of_a_starting_pod(
    agents: Rig, rig: Rig, namespace: str, tmp_path: Path, hub: hubs.Hub
) -> None:
    """While a pod is bound to a node and not ready, the operator tells the node's agent to read the weights of this pod into
    the page cache, and the agent reports what it has read.
    """
    node, disk = rig.all("Node", "")[2]["metadata"]["name"], tmp_path / "disk"
    agents.stop()
    agents.start("operator", "--model-agent", f"--agent-root={disk}")
    model = yamls.model("fetched", URI)
    model["spec"]["storage"] = storage(URI, disk / "fetched", node)
    rig.create(model)
    rig.create(yamls.runtime("w-prefetch", router=False))
    place, total = (
        str(disk / ".ome" / parts.digest(model)),
        sum(len(data) for name, data in hub.files.items() if "/" not in name),
    )

    def record() -> dict[str, Any]:
        (found,) = [one for one in rig.api.get(RECORDS)["items"] if one["metadata"]["name"] == node] or [{}]
        return found

    def says(told: list[str], **read: Any) -> bool:
        found = record()
        expected = {"limit": 1_000_000_000, **read}
        return found.get("spec", {}).get("prefetch", []) == told and found.get("status", {}).get("prefetch") == expected

    try:
        start(rig, node, tmp_path, hub, "--prefetch-gb", "1", program=hasty_agent.__name__)
        rig.wait("both labels", lambda: labels(rig, node) == {LABEL: "Ready", whole(model): "Ready"})
        assert says([])
        service = yamls.service(namespace, "fetched", "w-prefetch", "engine", model="fetched")
        service["spec"]["engine"]["annotations"] = {START_DELAY: "30s"}  # the agent asks every 3 s
        rig.create(service)
        read = {"directory": place, "bytes": total, "total": total}
        rig.wait("it has read", lambda: says([place], directories=[read]), seconds=60)
        rig.ready(namespace, "fetched", seconds=120)
        rig.wait("nothing more to read", lambda: says([]), seconds=40)
    finally:
        rig.stop(process=f"agent-{node}")
        rig.delete("InferenceService", namespace, "fetched")
        rig.delete("ClusterBaseModel", "", "fetched")
        rig.delete("ClusterServingRuntime", "", "w-prefetch")
        rig.api.request("DELETE", f"{RECORDS}/{node}")
        agents.stop()
        agents.start("operator", "--model-agent", "--agent-root=/mnt/models")


def test_report_of_one_agent_does_not_change_labels_of_other_nodes(agents: Rig, rig: Rig, tmp_path: Path) -> None:
    """The attack of finding T5: before any other agent has a record, the agent of one node reports another commit of a
    model, and facts of another model. Labels of other nodes do not change.
    """
    evil, *honest = (one["metadata"]["name"] for one in rig.all("Node", "")[:3])
    false, commit = "bad" * 13 + "b", "c0ffee" + "0" * 34
    rig.create(yamls.model("judged", URI))
    agents_of: dict[str, Token] = {}

    def starts(node: str) -> None:
        """Create the record of a node, as the node's agent does when it starts."""
        agents_of[node] = Token(agent(rig, node, tmp_path))
        record = {"apiVersion": "ome.io/v1beta1", "kind": "NodeModels", "metadata": {"name": node}}
        assert agents_of[node].send("POST", RECORDS, record)[0] == 201

    def told(node: str, revision: str, architecture: str) -> None:
        """Write the record of a node with the token of its agent."""
        model = {"kind": "ClusterBaseModel", "name": "judged", "uri": URI, "revision": revision, "state": "Ready"}
        body = {"status": {"models": [{**model, "facts": {"architecture": architecture}}]}}
        merge = "application/merge-patch+json"
        assert agents_of[node].send("PATCH", f"{RECORDS}/{node}/status", body, merge) == (200, "")

    def status() -> dict[str, Any]:
        found = rig.get("ClusterBaseModel", "", "judged") or {}
        return found.get("status") or {}

    def agreement() -> dict[str, Any]:
        return next((one for one in status().get("conditions") or () if one["type"] == "NodesAgree"), {})

    def nothing_counts() -> None:
        rig.wait("it is named", lambda: agreement().get("reason") == "Unconfirmed" and evil in agreement()["message"])
        assert false not in json.dumps(status().get("weights") or {}) and "Evil" not in json.dumps(status().get("facts"))

    try:
        starts(evil)
        told(evil, false, "Evil")
        nothing_counts()
        for node in honest:
            starts(node)
        nothing_counts()
        for node in honest:
            told(node, commit, "DeepseekV3ForCausalLM")
        rig.wait("two nodes agree", lambda: (status().get("weights") or {}).get("revision") == commit)
        rig.wait("their facts count", lambda: "DeepseekV3ForCausalLM" in json.dumps(status().get("facts")))
        assert agreement()["reason"] == "NodesDisagree" and evil in agreement()["message"]
        assert "Evil" not in json.dumps(status().get("facts"))
    finally:
        rig.delete("ClusterBaseModel", "", "judged")
        for node in agents_of:
            rig.api.request("DELETE", f"{RECORDS}/{node}")


def only_its_own_record(rig: Rig, node: str, other: str, folder: Path) -> None:
    """Check what an agent's token permits and denies."""
    own = Token(folder / node)
    manifest = {"apiVersion": "ome.io/v1beta1", "kind": "NodeModels", "metadata": {"name": other}}
    merge = "application/merge-patch+json"
    refused = [
        ("POST", RECORDS, manifest, "application/json"),
        ("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"labels": {LABEL: "Ready"}}}, merge),
        ("PATCH", f"{RECORDS}/{node}", {"metadata": {"labels": {"a": "b"}}}, merge),
        ("PATCH", "/apis/ome.io/v1beta1/clusterbasemodels/fetched/status", {"status": {"state": "Ready"}}, merge),
        ("DELETE", f"{RECORDS}/{node}", None, "application/json"),
        ("GET", "/api/v1/namespaces/ome/secrets", None, "application/json"),
        ("GET", "/api/v1/pods", None, "application/json"),
    ]
    rig.api.request("POST", RECORDS, manifest)
    try:
        refused.append(("PATCH", f"{RECORDS}/{other}/status", {"status": {"summary": "mine"}}, merge))
        for method, where, body, content in refused:
            code, said = own.send(method, where, body, content)
            assert code in (403, 422), (method, where, code, said)
        _, said = own.send("PATCH", f"{RECORDS}/{other}/status", {"status": {"summary": "mine"}}, merge)
        assert "only write the NodeModels of the node that it runs on" in said
        assert own.send("PATCH", f"{RECORDS}/{node}/status", {"status": {"summary": "mine"}}, merge)[0] == 200
    finally:
        rig.api.request("DELETE", f"{RECORDS}/{other}")


def pods_mount_the_revision(rig: Rig, namespace: str, node: str, model: dict[str, Any]) -> None:
    """Check that the pods of a service are scheduled to the node that has the revision, and mount its directory at the path
    of the model.
    """
    path = model["spec"]["storage"]["path"]
    rig.create(yamls.runtime("w-agent", router=False))
    try:
        rig.create(yamls.service(namespace, "fetched", "w-agent", "engine", model="fetched"))
        rig.ready(namespace, "fetched")
        (pod,) = rig.all("Pod", namespace, "component=engine")
        assert pod["spec"]["nodeName"] == node
        place = str(Path(path).parent / ".ome" / parts.digest(model))
        assert [one["hostPath"]["path"] for one in pod["spec"]["volumes"] if "hostPath" in one] == [place]
        assert path in [one["mountPath"] for one in pod["spec"]["containers"][0]["volumeMounts"]]
        rig.delete("InferenceService", namespace, "fetched")
    finally:
        rig.delete("ClusterServingRuntime", "", "w-agent")


def only_these_labels(rig: Rig, node: str) -> None:
    """Check what the operator's token permits and denies for a node."""
    own = Token(rig.kubeconfig)
    where, merge = f"/api/v1/nodes/{node}", "application/merge-patch+json"
    for change in (
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"labels": {"kubernetes.io/hostname": None}}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}},
    ):
        code, said = own.send("PATCH", where, change, merge)
        assert code in (403, 422) and "labels of nodes" in said, (change, code, said)
    for value in ("y", None):
        assert own.send("PATCH", where, {"metadata": {"labels": {"models.ome.io/x": value}}}, merge) == (200, "")


def nothing_tells_the_token(rig: Rig, node: str, token: str) -> None:
    """Check that no object, event or log contains the token with which the hub was accessed, and that other users of the
    machine cannot read it from a process.
    """
    process = rig.cluster.process(f"agent-{node}")
    assert process is not None
    seen = {name: Path(f"/proc/{process.pid}/{name}").read_bytes() for name in ("cmdline", "environ")}
    seen |= {name: rig.cluster.log(name).read_bytes() for name in (f"agent-{node}", "operator", "apiserver")}
    for kind in ("ConfigMap", "Event", "Pod", "ClusterBaseModel", "NodeModels", "Node"):
        seen[kind] = json.dumps(rig.all(kind, "")).encode()
    assert all(seen.values()), "no source of text is empty"
    assert [name for name, said in seen.items() if token.encode() in said] == []


def test_unreferenced_weights_are_removed(agents: Rig, rig: Rig, namespace: str, tmp_path: Path, hub: hubs.Hub) -> None:
    """An agent downloads a model and weights that were trained on it, and a pod mounts both. When the model names a new
    revision, the files of the old revision are removed, because nothing refers to them any more.
    """
    node, home = rig.all("Node", "")[2]["metadata"]["name"], tmp_path / "disk" / ".ome"
    model = yamls.model("fetched", URI)
    model["spec"]["storage"] = storage(URI, tmp_path / "disk" / "fetched", node)
    where = storage(f"{URI}@v1", tmp_path / "disk" / "poet", node)
    poet = {"baseModelRef": {"name": "fetched"}, "modelType": "LoRA", "hyperParameters": {}, "storage": where}
    trained = {"apiVersion": yamls.API, "kind": "FineTunedWeight", "metadata": {"name": "poet"}, "spec": poet}
    edit = {"storageUri": f"{URI}@{hubs.COMMIT}"}
    edited = {**model, "spec": {**model["spec"], "storage": {**model["spec"]["storage"], **edit}}}
    old, new, lora = (home / parts.digest(one) for one in (model, edited, trained))
    try:
        rig.create(model)
        rig.create(trained)
        rig.create(yamls.runtime("w-leftovers", router=False))
        service = yamls.service(namespace, "leftovers", "w-leftovers", "engine", model="fetched")
        service["spec"]["model"]["fineTunedWeights"] = ["poet"]
        rig.create(service)
        start(rig, node, tmp_path, hub, "--remove-after=1", program=hasty_agent.__name__)
        rig.ready(namespace, "leftovers", 60)
        (pod,) = rig.all("Pod", namespace, "component=engine")
        assert [one["hostPath"]["path"] for one in pod["spec"]["volumes"] if "hostPath" in one] == [str(old), str(lora)]

        def holds_poet() -> bool:
            status = (rig.get("FineTunedWeight", "", "poet") or {})["status"]
            return bool(status["state"] == "Ready" and status.get("nodesReady") == [node])

        rig.wait("status of the weights", holds_poet)

        rig.patch("ClusterBaseModel", "", "fetched", {"spec": {"storage": edit}})
        rig.wait("offered, and not allowed", lambda: '"offer": "2' in json.dumps(rig.get("NodeModels", "", node)))
        rig.wait("the new revision runs", lambda: new.is_dir() and str(new) in json.dumps(rig.all("Pod", namespace)))
        rig.ready(namespace, "leftovers", 60)
        found = rig.get("NodeModels", "", node) or {}
        assert old.is_dir() and not found.get("spec", {}).get("remove"), "a rollback would need it"
        assert labels(rig, node)[whole(model)] == "Ready"

        rig.clear(namespace)
        rig.wait("the old revision is gone", lambda: not old.exists(), 60)
        rig.wait("and its label", lambda: whole(model) not in labels(rig, node))
        assert new.is_dir() and lora.is_dir()
    finally:
        rig.stop(process=f"agent-{node}")
        rig.delete("InferenceService", namespace, "leftovers")
        rig.delete("ClusterBaseModel", "", "fetched")
        rig.delete("FineTunedWeight", "", "poet")
        rig.delete("ClusterServingRuntime", "", "w-leftovers")
        rig.delete("NodeModels", "", node)
