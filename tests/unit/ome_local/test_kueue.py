"""Tests of the Kueue of a local cluster: its configuration, its CRDs and its webhooks."""

import base64
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from ome_local import creation, kueue, options, stages
from ome_local.binaries import ensure, gobuild
from ome_local.binaries.versions import TOOLS, Target
from ome_local.components import IDENTITIES, PORTS, POWERFUL
from ome_local.layout import Layout
from ome_local.spec import ClusterFile, Spec
from ome_operator.errors import UserError

MACHINE = Target("linux", "amd64")
SERVICE = {"service": {"name": "webhook-service", "namespace": "system", "path": "/mutate--v1-pod"}}
FOUND = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingWebhookConfiguration",
    "metadata": {"name": "mutating-webhook-configuration"},
    "webhooks": [
        {"name": "mpod.kb.io", "clientConfig": SERVICE, "failurePolicy": "Fail", "rules": [{"resources": ["pods"]}]}
    ],
}


@pytest.fixture
def made(tmp_path: Path) -> tuple[Layout, ClusterFile]:
    """Return the files of a new cluster with Kueue."""
    at = Layout(tmp_path / "mine")
    return at, creation.create(at, Spec(kueue=True))


def test_kueue_listens_on_loopback_with_a_certificate_of_the_cluster(made: tuple[Layout, ClusterFile]) -> None:
    at, kept = made
    environment = kueue.write(at, kept)
    folder = Path(environment["KUEUE_METRICS_CERTS"])
    assert (folder / "tls.crt").read_bytes() == (at.pki / "server.crt").read_bytes()
    assert (folder / "tls.key").read_bytes() == (at.pki / "server.key").read_bytes()
    assert (folder / "tls.key").stat().st_mode & 0o077 == 0
    config = yaml.safe_load((at.kueue / "kueue.yaml").read_text())
    assert config["webhook"] == {"host": "127.0.0.1", "port": kept.ports["kueue"], "certDir": str(folder)}
    assert config["health"]["healthProbeBindAddress"] == f"127.0.0.1:{kept.ports['kueue-health']}"
    assert {"pod", "statefulset"} <= {*config["integrations"]["frameworks"]}


def test_webhooks_use_an_address_and_exclude_system_namespaces(made: tuple[Layout, ClusterFile]) -> None:
    at, kept = made
    found = kueue.webhooks(FOUND, at, kept)
    assert found["metadata"]["name"] == "kueue-mutating-webhook-configuration"
    (webhook,) = found["webhooks"]
    assert webhook["clientConfig"]["url"] == f"https://127.0.0.1:{kept.ports['kueue']}/mutate--v1-pod"
    assert base64.b64decode(webhook["clientConfig"]["caBundle"]) == (at.pki / "ca.crt").read_bytes()
    (expression,) = webhook["namespaceSelector"]["matchExpressions"]
    assert (expression["operator"], expression["values"]) == ("NotIn", ["kube-system", "kueue-system"])
    assert webhook["failurePolicy"] == "Fail" and webhook["rules"] == FOUND["webhooks"][0]["rules"]  # type: ignore[index]


def test_cluster_has_ports_and_an_identity_for_kueue(made: tuple[Layout, ClusterFile]) -> None:
    at, _ = made
    assert {kueue.NAME, kueue.HEALTH} <= {*PORTS} and kueue.NAME in IDENTITIES and kueue.NAME in POWERFUL
    assert at.component_kubeconfig(kueue.NAME).exists()
    old = ClusterFile(Spec(), {name: 1 for name in PORTS if name != kueue.NAME})
    with pytest.raises(UserError, match="--with kueue: cluster mine was created by an earlier version"):
        options.check("mine", old, Spec(kueue=True))


@pytest.mark.parametrize(("kept", "wanted"), [(None, Spec(kind=True, kueue=True)), (Spec(kind=True), Spec(kueue=True))])
def test_kueue_is_refused_with_kind(kept: Spec | None, wanted: Spec) -> None:
    assert options.option_error("mine", kept, wanted).startswith("--with kueue: the API server of kind cannot connect")


def named(found: list[stages.Stage]) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one["spec"] for one in found}


def test_deleted_simulated_pods_end_as_failed_with_kueue(made: tuple[Layout, ClusterFile]) -> None:
    """With Kueue, simulated pods end as under a kubelet: a deleted pod first becomes Failed, and only its owner removes its
    finalizers.
    """
    at, _ = made
    usual, like_kubelet = named(stages.defaults()), named(stages.defaults(keeps_finalizers=True))
    assert usual["pod-delete"]["next"] == {"finalizers": {"empty": True}, "delete": True}
    assert "finalizers" not in json.dumps(like_kubelet)
    assert "phase: Failed" in like_kubelet["pod-fail"]["next"]["statusTemplate"]
    assert usual.keys() <= like_kubelet.keys()
    assert "pod-fail" in at.stages.read_text()


def test_files_of_the_source_are_kept_next_to_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of Kueue's program contains the CRDs and webhooks of the same version."""
    monkeypatch.setenv("OME_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(ensure, "this_machine", lambda **_: MACHINE)
    root = "sigs.k8s.io/kueue@v0.17.0"
    main = 'metricsCertPath := "/etc/kueue/metrics/certs"'
    with zipfile.ZipFile(tmp_path / "source.zip", "w") as file:
        file.writestr(f"{root}/cmd/kueue/main.go", main)
        for path in ("crd/bases/a.yaml", "crd/patches/b.yaml", "webhook/manifests.yaml", "webhook/service.yaml"):
            file.writestr(f"{root}/config/components/{path}", path)
    told = json.dumps({"Path": "sigs.k8s.io/kueue", "Version": "v0.17.0", "Zip": str(tmp_path / "source.zip")})
    go = tmp_path / "go"
    go.write_text(
        f'#!/bin/sh\nif [ $1 = mod ]; then echo \'{told}\'; exit; fi\nfor w; do [ "$l" = -o ] && echo >"$w"; l=$w; done\n'
    )
    go.chmod(0o755)
    monkeypatch.setattr(gobuild, "find_go", lambda *_: str(go))
    program = kueue.program()
    files = ensure.files(TOOLS["kueue"], MACHINE)
    assert program.parent == files.parent
    found = {str(path.relative_to(files)) for path in files.rglob("*") if path.is_file()}
    assert found == {"config/components/crd/bases/a.yaml", "config/components/webhook/manifests.yaml"}
