"""Tests of the command line of `ome local`: messages instead of tracebacks, and arguments that are passed on unchanged."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ome_local import layout
from ome_local.binaries import versions
from ome_local.cli import kept_otherwise
from ome_local.spec import Spec
from ome_operator.errors import UserError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home directory without a cluster."""
    monkeypatch.setenv("OME_LOCAL_HOME", str(tmp_path / "clusters"))
    return tmp_path


def ome(*words: str, path: str | None = None) -> tuple[int, str, str]:
    """Run the command in a separate process, with `path` as its PATH if it is given. Return exit code, stdout and stderr."""
    environment = {**os.environ, **({"PATH": path} if path is not None else {})}
    done = subprocess.run(
        [sys.executable, "-m", "ome_operator", *words], capture_output=True, text=True, check=False, env=environment
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("status",), "There is no cluster 'ome': create it with `ome local up --name ome`."),
        (("kubeconfig", "--name", "x"), "There is no cluster 'x': create it with `ome local up --name x`."),
        (("kubectl", "--name", "x", "get", "pods", "--name", "y"), "There is no cluster 'x'"),
        (
            ("up", "--name", "../x"),
            "'../x' is not a valid name of a cluster: write at most 40 of the characters a-z, 0-9 and -, without a - at "
            "the start or end.",
        ),
        (("up", "--accelerator", "h300"), "Unknown accelerator 'h300': use one of a100, b200, cpu, h100, h200."),
        (("up", "--accelerator", "cpu", "--gpus-per-node", "8"), "A machine of kind 'cpu' has no GPUs"),
        (("up", "--kind", "--real-node"), "the nodes of kind are real nodes already: leave out --real-node or --kind."),
        (("up", "--kind", "--audit"), "--audit: kind starts its own API server and controllers, without it."),
        (("up", "--workers", "2"), "--workers 2: only kind has worker nodes."),
        (("model", "--name", "x"), "There is no cluster 'x'"),
        (("load", "--name", "x", "image.tar"), "There is no cluster 'x'"),
    ],
)
def test_mistakes_of_user_are_reported_with_exit_code_1(home: Path, words: tuple[str, ...], sentence: str) -> None:
    """A mistake of the user leads to a message on stderr and the exit code 1, and nothing is created."""
    code, out, complaint = ome("local", *words)
    assert (code, out) == (1, "")
    assert complaint.startswith(sentence)
    assert "Traceback" not in complaint
    assert not (home / "clusters").exists()


def test_up_kind_without_docker_fails_with_message(home: Path, tmp_path: Path) -> None:
    """`up --kind` without Docker fails with a message, and with another one if Docker's server does not answer."""
    programs = tmp_path / "bin"
    programs.mkdir()
    assert ome("local", "up", "--kind", path=str(programs))[2].startswith(
        "--kind needs Docker and kind, but there is no `docker`"
    )
    for name in ("docker", "kind"):
        (programs / name).write_text("#!/bin/sh\nexit 1\n")
        (programs / name).chmod(0o755)
    assert (
        "`docker info` reports that the Docker server cannot be reached"
        in ome("local", "up", "--kind", path=str(programs))[2]
    )


def test_down_without_a_cluster_succeeds(home: Path) -> None:
    """`down` of a cluster that does not exist succeeds, because the cluster does not exist, as requested."""
    assert ome("local", "down") == (0, "There is no cluster ome, so there is nothing to do.\n", "")
    assert ome("local", "down", "--all") == (0, "", "")
    assert ome("demo", "--down") == (0, "There is no demo, so there is nothing to do.\n", "")


@pytest.mark.parametrize(
    ("given", "kept", "said"),
    [
        ({"gpus_per_node": 4}, Spec(nodes=2), "--gpus-per-node 8"),
        ({"gpus_per_node": 8, "accelerator": "h200"}, Spec(nodes=2), ""),
        ({"accelerator": "b200", "audit": True}, Spec(nodes=2), "--accelerator h200, no --audit"),
        ({"start_delay_s": 2.0, "fast": False}, Spec(fast=True), "--start-delay 0.0, --fast"),
        ({}, Spec(nodes=2, accelerator="b200", gpus_per_node=4), ""),
    ],
)
def test_ineffective_options_of_an_existing_cluster_are_reported(given: dict[str, Any], kept: Spec, said: str) -> None:
    """If an existing cluster cannot get an option, `up` says so, but only for options that the user gave."""
    assert kept_otherwise(given, kept) == said


def test_command_chooses_named_default_or_only_cluster(home: Path) -> None:
    """A command uses the cluster that is named, the default one, or the only one. It never uses an arbitrary
    one of several.
    """

    def made(*names: str) -> None:
        for name in names:
            at = layout.layout(name)
            at.make()
            at.spec.write_text("{}")

    assert layout.choose_cluster(None) == "ome"
    made("demo")
    assert layout.choose_cluster(None) == "demo"
    assert layout.choose_cluster("x") == "x"
    made("other")
    assert layout.choose_cluster(None) == "ome"


def test_command_imports_only_the_packages_it_needs() -> None:
    """A command imports only what it needs: `ome local kubectl` must start fast, so it imports no operator, no client of
    clusters, and no library for terminal output.
    """
    words = "import sys; import ome_operator.cli.app, ome_local.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True).stdout.split()
    assert not {"kopf", "kubernetes", "aiohttp", "pydantic", "rich", "ome_operator.app"} & set(loaded)


@pytest.mark.parametrize(
    ("system", "machine", "clients", "found"),
    [
        ("linux", "x86_64", False, versions.Target("linux", "amd64")),
        ("linux", "aarch64", False, versions.Target("linux", "arm64")),
        ("darwin", "arm64", True, versions.Target("darwin", "arm64")),
        ("darwin", "arm64", False, None),
        ("linux", "riscv64", False, None),
        ("win32", "AMD64", True, None),
    ],
)
def test_unsupported_machine_message_suggests_kind(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str, clients: bool, found: versions.Target | None
) -> None:
    """On unsupported machines, the message suggests kind."""
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    if found:
        assert versions.this_machine(clients_only=clients) == found
    else:
        with pytest.raises(UserError, match="runs on Linux" if clients else "`ome local up --kind`"):
            versions.this_machine(clients_only=clients)
