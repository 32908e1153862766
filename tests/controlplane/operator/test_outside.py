"""The charts as people install them: whose images they name, and the operator as a process of its own account."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from ome_operator.errors import UserError
from tests.support.rig import ROOT, Rig

CHART = ("template", "ome", str(ROOT / "charts/ome-resources"), "-n", "ome")
MINE = "registry.example.com/team/ome-operator"


def images(text: str) -> set[str]:
    """Whatever a container is made from, or is told to make others from."""
    return set(re.findall(r"(?:image: |-image=)\"?([^\s\"]+)", text))


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ((), "set image.repository to the repository of your registry"),
        (("operator.external=true", "agent.enabled=true"), "set agent.image.repository to the repository of your registry"),
    ],
)
def test_an_image_of_nobody_is_refused(sets: tuple[str, ...], said: str, installed: Rig) -> None:
    """A bare name would be pulled from a public registry, where anybody may take it."""
    with pytest.raises(UserError, match=said):
        installed.cluster.helm(*CHART, *(word for one in sets for word in ("--set", one)))


def test_all_images_are_beside_the_operators(installed: Rig) -> None:
    text = installed.cluster.helm(*CHART, "--set", f"image.repository={MINE}", "--set", "agent.enabled=true")
    version = yaml.safe_load((ROOT / "charts/ome-resources/Chart.yaml").read_text())["appVersion"]
    ours = {name for name in images(text) if "sglang" not in name}
    assert ours == {f"{MINE}:{version}", f"registry.example.com/team/ome-agent:{version}"}
    local = installed.cluster.helm(*CHART, "--set", "image.repository=ome-operator", "--set", "image.tag=mine")
    assert f"--tools-image=ome-agent:{version}" in local, "a name without a registry is one that somebody has chosen"


def test_the_lines_that_make_its_kubeconfig(installed: Rig, tmp_path: Path) -> None:
    """As helm prints them, word for word."""
    notes = installed.cluster.helm("get", "notes", "ome", "-n", "ome")
    lines = [line.strip() for line in notes.splitlines() if re.match(r"  (\(umask|kubectl --kubeconfig)", line)]
    assert len(lines) == 3
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/kubectl").symlink_to(installed.cluster.program("kubectl"))
    environment = {**installed.cluster.environment(), "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}

    def shell(script: str) -> str:
        command = ["bash", "-ec", script]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    shell("\n".join(lines))
    config = tmp_path / "ome-operator.kubeconfig"
    assert config.stat().st_mode & 0o077 == 0
    token = shell(f"kubectl --kubeconfig {config} config view --raw --minify -o jsonpath='{{.users[0].user.token}}'")
    # Asked by an administrator: what this account itself asks, test_rbac.py takes for what the operator needs.
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    told = json.loads(installed.cluster.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(review)))
    assert told["status"]["user"]["username"] == "system:serviceaccount:ome:ome-operator"
    started = [line.strip() for line in notes.splitlines() if line.startswith("  ome operator ")]
    assert started == ["ome operator --kubeconfig ome-operator.kubeconfig --namespace-of-lease ome"]
