"""The same cluster with kind's control plane, for people with Docker (and for every machine that is not Linux).

Simulated nodes are the same: kwok runs as a process of ours against kind's API server. Kind's own node is the real one: it
has its label, and the directory of this machine's models.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from ome_local import tinymodel
from ome_local.layout import Layout
from ome_local.progress import step
from ome_local.realnode.spec import LABEL
from ome_operator.errors import UserError


def require() -> None:
    """Docker must answer and kind must be installed."""
    for program, where in (("docker", "Docker"), ("kind", "kind")):
        if shutil.which(program) is None:
            raise UserError(f"--kind needs {where}, and there is no `{program}` in PATH.")
    if _run(["docker", "info"], check=False).returncode:
        raise UserError("--kind needs Docker, and `docker info` says that its server cannot be reached.")


def start(at: Layout) -> None:
    """Create the kind cluster unless it exists, with kind's own version of Kubernetes.

    Its kubeconfig goes into our directory, never into ~/.kube.
    """
    if _name(at) in _run(["kind", "get", "clusters"]).stdout.split():
        if not at.kubeconfig.exists():
            _run(["kind", "export", "kubeconfig", "--name", _name(at), "--kubeconfig", str(at.kubeconfig)])
        return
    with step("creating a kind cluster"):
        which = ["--name", _name(at), "--kubeconfig", str(at.kubeconfig)]
        _run(["kind", "create", "cluster", *which, "--config", "-", "--wait", "120s"], said=json.dumps(_config()))
    at.kubeconfig.chmod(0o600)


def is_ours(at: Layout) -> bool:
    """True when this directory belongs to a kind cluster: ours has keys of its own, kind keeps them."""
    return at.kubeconfig.exists() and not (at.pki / "ca.key").exists() and shutil.which("kind") is not None


def remove(at: Layout) -> None:
    """Delete the kind cluster, and the tiny model that only its node could mount."""
    _run(["kind", "delete", "cluster", "--name", _name(at), "--kubeconfig", str(at.kubeconfig)])
    tinymodel.remove()


def load(at: Layout, file: Path) -> None:
    """Give the node the images of a docker-archive."""
    if not file.is_file():
        raise UserError(f"There is no image archive {file}.")
    _run(["kind", "load", "image-archive", str(file), "--name", _name(at)])


def node(at: Layout) -> str:
    """The name of its node."""
    return f"{_name(at)}-control-plane"


def _config() -> dict[str, Any]:
    """One node. JSON is YAML."""
    models = str(tinymodel.PLACE.parent)
    mount = {"hostPath": models, "containerPath": models, "readOnly": True}
    one = {"role": "control-plane", "labels": {LABEL: "true"}, "extraMounts": [mount]}
    return {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": [one]}


def _name(at: Layout) -> str:
    return f"ome-{at.root.name}"


def _run(command: list[str], *, check: bool = True, said: str = "") -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(command, input=said, capture_output=True, text=True, check=False)
    if check and done.returncode:
        last = (done.stderr.strip().splitlines() or ["(nothing was said)"])[-1]
        raise UserError(f"`{' '.join(command[:3])}` failed: {last}")
    return done
