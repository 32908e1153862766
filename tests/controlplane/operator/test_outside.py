"""Tests of the charts as users install them: the registries of the images, and an operator that runs as a process outside of
the cluster with its own account.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ome_operator.errors import UserError
from tests.support.rig import ROOT, Rig

CHART = ("template", "ome", str(ROOT / "charts/ome-resources"), "-n", "ome")
MINE = "registry.example.com/team/ome-operator"


def images(text: str) -> set[str]:
    """Return all images of containers, and all images that arguments of containers name."""
    return set(re.findall(r"(?:image: |-image=)\"?([^\s\"]+)", text))


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ((), "set image.repository to the repository of your registry"),
        (("operator.external=true", "agent.enabled=true"), "set agent.image.repository to the repository of your registry"),
    ],
)
def test_image_name_without_registry_is_refused(sets: tuple[str, ...], said: str, installed: Rig) -> None:
    """The chart refuses to be rendered with an image name that has no registry. Such an image would be pulled from a public
    registry, where anybody can claim the name.
    """
    with pytest.raises(UserError, match=said):
        installed.cluster.helm(*CHART, *(word for one in sets for word in ("--set", one)))


def test_all_images_come_from_the_registry_of_the_operator_image(installed: Rig) -> None:
    text = installed.cluster.helm(*CHART, "--set", f"image.repository={MINE}", "--set", "agent.enabled=true")
    version = yaml.safe_load((ROOT / "charts/ome-resources/Chart.yaml").read_text())["appVersion"]
    ours = {name for name in images(text) if "sglang" not in name}
    assert ours == {f"{MINE}:{version}", f"registry.example.com/team/ome-agent:{version}"}
    local = installed.cluster.helm(*CHART, "--set", "image.repository=ome-operator", "--set", "image.tag=mine")
    assert f"--tools-image=ome-agent:{version}" in local, "the user chose an image without a registry"


def test_printed_commands_create_the_kubeconfig_of_the_operator(installed: Rig, tmp_path: Path) -> None:
    """The commands that helm prints after an installation create the operator's kubeconfig without any change. It contains
    the token of the operator's account, and no other credential.
    """
    notes = installed.cluster.helm("get", "notes", "ome", "-n", "ome")
    first, second = [line.strip() for line in notes.splitlines() if line.startswith("  ome ")]
    assert first == "ome kubeconfig --serviceaccount ome/ome-operator"
    assert second == "ome operator --kubeconfig ome-operator.kubeconfig --namespace-of-lease ome"
    environment = {**installed.cluster.environment(), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-ec", first], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "system:serviceaccount:ome:ome-operator at https://" in done.stderr
    config = tmp_path / "ome-operator.kubeconfig"
    assert config.stat().st_mode & 0o077 == 0
    (user,) = yaml.safe_load(config.read_text())["users"]
    assert set(user["user"]) == {"token"}
    # An administrator asks, because test_rbac.py takes requests of this account as rights that the operator needs.
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": user["user"]["token"]}}
    told = json.loads(installed.cluster.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(review)))
    assert told["status"]["user"]["username"] == "system:serviceaccount:ome:ome-operator"


def test_missing_service_account_gives_a_one_line_error(installed: Rig, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ome_operator", "kubeconfig", "--serviceaccount", "ome/nobody"]
    environment = {**os.environ, **installed.cluster.environment(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "ServiceAccount ome/nobody" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and list(tmp_path.iterdir()) == []
