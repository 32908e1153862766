"""Tests that `ome diff` names a claim that does not exist, as the condition of the service does afterwards."""

from pathlib import Path

import yaml
from typer.testing import CliRunner

from ome_operator.cli.app import app
from tests.support import yamls
from tests.support.rig import Rig

CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: weights}
spec: {accessModes: [ReadOnlyMany], resources: {requests: {storage: 1Gi}}}
"""


def test_missing_claim_is_reported_by_diff_and_by_the_condition(rig: Rig, namespace: str, tmp_path: Path) -> None:
    name = f"claimed-{namespace}"
    runtime, model = yamls.runtime(name, router=False), yamls.model(name, "pvc://weights/tiny")
    rig.create(runtime)
    rig.create(model)
    body = yamls.service(namespace, "claimed", name, "engine", model=name)
    file, claim = tmp_path / "service.yaml", tmp_path / "claim.yaml"
    file.write_text(yaml.safe_dump(body))
    claim.write_text(CLAIM)

    def sentence(*files: Path) -> str:
        named = [word for each in files for word in ("-f", str(each))]
        where = ["--kubeconfig", str(rig.cluster.kubeconfig), "-n", namespace]
        result = CliRunner().invoke(app, ["diff", *named, "--brief", *where], catch_exceptions=False)
        assert result.exit_code == 1, result.output
        return " ".join(result.stdout.split())

    said = f"PersistentVolumeClaim weights does not exist in namespace {namespace}, so the pods that name it do not start"
    assert said in sentence(file)
    assert "does not exist" not in sentence(file, claim), "the same files create it"
    rig.cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=CLAIM)
    assert "does not exist" not in sentence(file)
    rig.cluster.kubectl("delete", "pvc", "weights", "-n", namespace, "--wait=false")
    for kind in ("ClusterServingRuntime", "ClusterBaseModel"):
        rig.delete(kind, "", name)
