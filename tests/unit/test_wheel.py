"""The wheel, installed elsewhere into an environment of its own: every command runs there, far from any checkout."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.parts import ROOT

UV = Path(sys.executable).parent / "uv"
Ome = Callable[..., "subprocess.CompletedProcess[str]"]


def run(*words: object, **more: object) -> "subprocess.CompletedProcess[str]":
    """A command that has to succeed."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
    return done  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `pip wheel .` makes it, with the build backend of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder, cwd=ROOT)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def ome(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Ome:
    """The installed command. What it depends on comes from the lock, and mostly from the cache of `make setup`."""
    there = tmp_path_factory.mktemp("elsewhere")
    run(sys.executable, "-m", "venv", "--without-pip", there / "venv")
    install = (
        UV,
        "pip",
        "install",
        "--quiet",
        "--python",
        there / "venv/bin/python",
        "-c",
        ROOT / "requirements.lock",
        wheel,
    )
    if subprocess.run([*map(str, install), "--offline"], capture_output=True, check=False).returncode:
        run(*install)
    kept = ("PATH", "LANG", "LC_ALL", "TMPDIR")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {"HOME": str(there), "OME_LOCAL_HOME": str(there / "clusters"), "COLUMNS": "80"}

    def called(*words: str, program: str = "ome") -> "subprocess.CompletedProcess[str]":
        command = [str(there / "venv/bin" / program), *words]
        return subprocess.run(command, cwd=there, env=environment, capture_output=True, text=True, check=False)

    return called


def test_it_carries_what_commands_read(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("charts", "config"):
        wanted = {f"ome_operator/shipped/{path.relative_to(ROOT)}" for path in (ROOT / folder).rglob("*") if path.is_file()}
        assert wanted - inside == set()
    pages = [path for folder in ("templates", "static") for path in (ROOT / "ome_operator/cli/ui" / folder).iterdir()]
    assert {str(path.relative_to(ROOT)) for path in pages} <= inside and len(pages) > 10
    assert not [name for name in inside if name.startswith(("tests/", "bench/", "charts/", "config/"))]


def test_every_command_starts(ome: Ome) -> None:
    """Those of the package for local clusters, too."""
    listed = ome("--help").stdout.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    names = [line.split()[0] for line in listed if line[:2] == "  " and line[2:3].strip()]
    assert {"operator", "generate", "status", "demo", "local", "adopt"} <= set(names)
    for name in names:
        done = ome(name, "--help")
        assert (done.returncode, done.stderr) == (0, ""), name
    assert ome("--version", program="kubectl-ome").stdout.startswith("ome ")


def test_commands_find_their_files(ome: Ome) -> None:
    made = ome("generate", "--hardware", "h200", "--model", "Kimi-K2-Instruct", "--strategy", "pd", "-o", "kimi")
    assert made.returncode == 0, made.stderr
    rendered = ome("render", "-f", "kimi", "-o", "json")
    assert rendered.returncode == 0 and '"StatefulSet"' in rendered.stdout, rendered.stderr
    known = ome("render", "-f", "kimi/service.yaml", "--catalog", "config/", "-o", "json")
    assert known.returncode == 1 and "ClusterServingRuntime kimi-k2-instruct-h200-pd32-96 does not exist" in known.stderr
    assert "ClusterBaseModel" not in known.stderr, "it is in config/, which came with the wheel"
    other = ome("generate", "--hardware", "h200", "--model", "DeepSeek-R1")
    assert other.returncode == 1 and "config/samples/isvc/deepseek-ai/deepseek-r1.yaml is a service" in other.stderr
    explained = ome("explain", "runtime", "-f", "kimi/service.yaml", "--files", "kimi")
    assert explained.returncode == 1 and "autoSelect" in explained.stdout, "it serves only those that name it"


def test_what_needs_a_cluster_says_so(ome: Ome) -> None:
    """With a sentence and never a traceback."""
    for words in (
        ("status",), ("explain", "x"), ("logs", "x"), ("ui", "--no-open"), ("diff", "-f", "kimi"), ("history", "x"),
        ("undo", "x"), ("retry", "x"), ("restart", "x"), ("pause", "x"), ("resume", "x"), ("adopt",),
        ("operator", "--kubeconfig", "none"),
        ("agent", "--node", "n", "--root", "/r", "--kubeconfig", "none"),
    ):  # fmt: skip
        done = ome(*words)
        assert done.returncode in (1, 2) and "no connection to a cluster: " in done.stderr, (words, done.stderr)
        assert "Traceback" not in done.stderr


def test_what_needs_a_checkout_says_so(ome: Ome) -> None:
    done = ome("local", "images", "operator")
    assert done.returncode == 1 and "this needs a checkout of the repository (`git clone`)" in done.stderr
    assert ome("local", "status").stderr.startswith("There is no cluster 'ome'")
    assert ome("demo", "--down").stdout == "There is no demo; nothing to do.\n"
