"""Tests which packages a command imports. Imports take most of the CPU time of a short command, so a command must not
import a package that it does not need. Unlike CPU time, the imports do not depend on the load of the machine.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web

from tests.support.hub import in_thread

ROOT = Path(__file__).parents[3]
SERVICE = "config/samples/isvc/moonshotai/kimi-k2-pd.yaml"
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: nowhere
clusters: [{name: nowhere, cluster: {server: "http://127.0.0.1:PORT"}}]
contexts: [{name: nowhere, context: {cluster: nowhere}}]
"""
ISVC = {
    "apiVersion": "ome.io/v1beta1",
    "kind": "InferenceService",
    "metadata": {"name": "a", "namespace": "team", "uid": "1", "generation": 1},
    "spec": {"model": {"name": "m"}, "engine": {}},
}
SERVERS = {"kopf", "obstore", "ome_operator.controllers", "ome_operator.watch", "ome_operator.agent"}
"""Packages that only operator and agent need."""
CLUSTER = {"kubernetes", "aiohttp", "asyncio", "ssl", "ome_operator.kube.client"}
"""Packages that only commands with a cluster need."""
FILES = {"pydantic", "yaml", "ome_operator.api", "ome_operator.core"}
"""Packages that only commands with objects need."""
LATER = {"numpy", "rich"}
"""Packages that only some outputs or `sizing.fit` need."""
TEMPLATES = {"jinja2"}
"""Packages that only commands with templates need."""
CHECKS = {"ome_operator.lint", "ome_operator.core.reconcile"}
"""Packages that only commands that compute objects need."""
COMMANDS = {
    "--help": SERVERS | CLUSTER | FILES | LATER | TEMPLATES,
    "--version": SERVERS | CLUSTER | FILES | LATER | TEMPLATES,
    f"lint -f {SERVICE}": SERVERS | CLUSTER | LATER | TEMPLATES,
    f"render -f {SERVICE}": SERVERS | CLUSTER | LATER | TEMPLATES,
    "plan --model Kimi-K2-Instruct --hardware h200 --nodes 4 --workload 2000/100": SERVERS
    | CLUSTER
    | LATER
    | TEMPLATES
    | {"ome_operator.core", "ome_operator.cache"},
    "generate --model Kimi-K2-Instruct --hardware h200 --strategy pd": SERVERS | CLUSTER | LATER,
    "status --kubeconfig {kubeconfig}": SERVERS | LATER | TEMPLATES | CHECKS,
}
"""Command -> the packages that it must not import."""


def kubeconfig(folder: Path, port: int = 9) -> Path:
    """Write a kubeconfig of a server on this port. By default, no server listens on the port."""
    file = folder / "kubeconfig"
    file.write_text(KUBECONFIG.replace("PORT", str(port)))
    return file


def imported(words: list[str]) -> set[str]:
    """Return the names of the modules that a command imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "ome_operator", *words], cwd=ROOT, capture_output=True, text=True
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_import_only_the_packages_they_need(command: str, tmp_path: Path) -> None:
    file = kubeconfig(tmp_path)
    found = imported(command.format(kubeconfig=file).split())
    assert "ome_operator.cli.app" in found
    assert found & COMMANDS[command] == set()


def test_a_command_with_a_cluster_imports_the_client(tmp_path: Path) -> None:
    """A command with a cluster imports the packages in CLUSTER and FILES. So these packages are spelled as the list of
    imports spells them: with a wrong spelling, the test that other commands do not import them would always pass.
    """
    found = imported(["status", "--kubeconfig", str(kubeconfig(tmp_path))])
    assert found >= CLUSTER | FILES


def test_status_command_does_not_import_reconciliation(tmp_path: Path) -> None:
    """`ome status` does not import the modules of reconciliation. It draws the trees of services with modules that are
    loaded only after a server has answered.
    """

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"items": [ISVC] if request.path.endswith("/inferenceservices") else []})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    with in_thread(app, ["127.0.0.1"]) as port:
        found = imported(["status", "-A", "--kubeconfig", str(kubeconfig(tmp_path, port))])
    assert "ome_operator.describe.draw" in found
    assert found & (SERVERS | TEMPLATES | CHECKS) == set()
