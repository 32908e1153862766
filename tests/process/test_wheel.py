"""Tests that every command works in the installed wheel, in an environment of its own and without a checkout."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from string import Template
from threading import Timer
from typing import Any

import pytest

from tests.support.parts import ROOT, read_documents
from tests.unit.sizing.test_compare import JOB

UV = Path(sys.executable).parent / "uv"
PARTS: Mapping[str, Mapping[str, Any]] = read_documents(ROOT / "tests/data/commands.yaml")[0]
REFUSES = "http://127.0.0.1:1"
"""An address on which no server listens."""
LEAVES = """
import json, typer
from ome_operator.cli.app import app

def leaves(group, before=()):
    context = group.make_context("ome", [], resilient_parsing=True)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield from leaves(command, (*before, name)) if hasattr(command, "list_commands") else [" ".join((*before, name))]

print(json.dumps(list(leaves(typer.main.get_command(app)))))
"""
"""Program that prints every command without subcommands, as the installed package lists the commands."""
TOLD = """
import contextlib, io, json, os, sys, tempfile
import aiohttp, jinja2, kubernetes.aio.config, pydantic.types, rich.console, typer._adapters, yaml  # nothing of ours

def told(words):
    from ome_operator.__main__ import main
    out, err, sys.argv, code = io.StringIO(), io.StringIO(), words, 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code
    return code, out.getvalue(), err.getvalue()

def fork(process):
    with tempfile.TemporaryFile("w+") as answers:
        if not (child := os.fork()):
            json.dump([told(words) for words in process], answers)
            answers.flush()
            os._exit(0)
        os.waitpid(child, 0)
        answers.seek(0)
        return json.load(answers)

print(json.dumps([fork(process) for process in json.loads(sys.argv[1])]))
"""
"""Runs lists of commands, each list in a process of its own, and prints exit code, output and errors of each command. The
packages that ours needs are loaded only once, because that takes most of a start. Our own package is loaded in each process.
"""
Done = subprocess.CompletedProcess[str]


def run(*words: object, **more: object) -> Done:
    """Run a command that has to succeed, and return its result."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
    return done  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel that `pip wheel .` builds with the build backend of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder, cwd=ROOT)
    (made,) = folder.glob("*.whl")
    return made


class Installed:
    """The wheel in an environment of its own, with an empty working directory."""

    def __init__(self, there: Path) -> None:
        self.there, self.bin = there, there / "venv/bin"
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
        self.environment = {**kept, "HOME": str(there), "OME_LOCAL_HOME": str(there / "clusters"), "COLUMNS": "80"}
        self.environment["KUBECONFIG"] = str(there / "kubeconfig")

    def words(self, command: str, line: str) -> list[str]:
        """Return the words with which a command of the table is started."""
        plan = (self.there / "plan.json").read_text()
        filled = [Template(word).safe_substitute(HERE=self.there, PLAN=plan) for word in shlex.split(line)]
        return [str(self.bin / "ome"), *command.split(), *filled]

    def ome(self, command: str, line: str = "") -> Done:
        """Run a command of the table to its end."""
        return self.told([[(command, line)]])[0]

    def told(self, processes: Iterable[Iterable[tuple[str, str]]], **environment: str) -> list[Done]:
        """Run the commands of the table and return their results. Commands in the same inner list share a process."""
        lists = [[self.words(*row) for row in rows] for rows in processes]
        program = [self.bin / "python", "-c", TOLD, json.dumps(lists)]
        given = {"cwd": self.there, "env": self.environment | environment, "stdin": subprocess.DEVNULL}
        answers = [each for process in json.loads(run(*program, **given).stdout) for each in process]
        done = [Done(words, *each) for words, each in zip(chain.from_iterable(lists), answers, strict=True)]
        assert [each for each in done if "Traceback" in each.stdout + each.stderr] == []
        return done


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Install the wheel. Its dependencies have the versions of the lock file and mostly come from the cache of `make
    setup`.
    """
    there = tmp_path_factory.mktemp("elsewhere")
    run(sys.executable, "-m", "venv", "--without-pip", there / "venv")
    lock = ROOT / "requirements.lock"
    install = (UV, "pip", "install", "--quiet", "--python", there / "venv/bin/python", "-c", lock, f"{wheel}[agent]")
    if subprocess.run([*map(str, install), "--offline"], capture_output=True, check=False).returncode:
        run(*install)
    user = {"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}
    cluster = {"clusters": [{"name": "c", "cluster": {"server": REFUSES}}], "users": [{"name": "u", "user": {"token": "t"}}]}
    (there / "kubeconfig").write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **user, **cluster}))
    (there / "job.yaml").write_text(JOB)
    rows = (ROOT / "ome_operator/sizing/data/calibration.csv").read_text().splitlines(keepends=True)
    (there / "runs.csv").write_text("".join(rows[:3]))
    shutil.copy(ROOT / "tests/incidents/rank-exits.json.gz", there / "incident.json.gz")
    measured = {"completed": 2, "errors": ["", ""], "output_throughput": 9.0, "median_ttft_ms": 5.0}
    (there / "raw").mkdir()
    (there / "raw/0.json").write_text(json.dumps({"result": measured}))
    task = {
        "name": "team/speed",
        "target": "http://svc",
        "service": {},
        "dataset": {},
        "output": {"path": str(there / "out")},
    }
    runs = [{"scenario": "D(1,1)", "concurrency": 1, "program": "serving"}]
    (there / "plan.json").write_text(json.dumps({**task, "runs": runs}))
    return Installed(there)


def test_wheel_contains_the_files_that_commands_read(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("charts", "config"):
        wanted = {f"ome_operator/shipped/{path.relative_to(ROOT)}" for path in (ROOT / folder).rglob("*") if path.is_file()}
        assert wanted - inside == set()
    pages = [path for folder in ("templates", "static") for path in (ROOT / "ome_operator/cli/ui" / folder).iterdir()]
    assert {str(path.relative_to(ROOT)) for path in pages} <= inside and len(pages) > 10
    assert not [name for name in inside if name.startswith(("tests/", "bench/", "charts/", "config/"))]


def test_command_table_contains_every_command_of_the_wheel(installed: Installed) -> None:
    """The table of commands, tests/data/commands.yaml, contains every command of the wheel, including the commands for
    local clusters, which are in another package.
    """
    done = run(installed.bin / "python", "-c", LEAVES, cwd=installed.there, env=installed.environment)
    leaves = {*json.loads(done.stdout)}
    assert {"operator", "demo", "local up", "plan layouts"} <= leaves
    rows = {command for part in PARTS.values() for command in part}
    assert rows - leaves == {"adopt"}, "this command also has subcommands"
    assert leaves - rows == set(), "tests/data/commands.yaml lacks a line for it"


def test_installed_wheel_starts_ome_and_kubectl_ome(installed: Installed) -> None:
    told = [
        subprocess.run(
            [installed.bin / name, "--version"], env=installed.environment, capture_output=True, check=True
        ).stdout
        for name in ("ome", "kubectl-ome")
    ]
    assert told[0] == told[1] and told[0].startswith(b"ome ")


def test_commands_work_in_the_installed_wheel(installed: Installed) -> None:
    """Every command that needs no cluster works in the installed wheel. The commands run in the order of the table, because
    the first command writes files that other commands read.
    """
    rows = [(command, row) for command, lines in PARTS["alone"].items() for row in lines]
    found = installed.told([(command, row["line"]) for row in lines] for command, lines in PARTS["alone"].items())
    for (command, row), done in zip(rows, found, strict=True):
        assert done.returncode == row["code"], (command, row, done.stderr)
        assert row["says"] in done.stdout + done.stderr, (command, row, done.stdout)
    assert {file.name for file in (installed.there / "out").iterdir()} == {"results.json", "report.html"}
    known = installed.ome("render", "-f kimi/service.yaml --catalog config/")
    assert "ClusterBaseModel" not in known.stderr, "the object is in config/, which is part of the wheel"


def documented(command: str) -> int:
    """Return the exit code of a command that gets no answer, from the table in docs/cli.md."""
    rows = re.findall(r"^\| `([a-z ]+?)(?: SERVICE)?` \|.*\| ([^|]+) \|$", (ROOT / "docs/cli.md").read_text(), re.MULTILINE)
    names = {name for name, second in rows if "no answer" in second} | {"logs"}
    return 2 if {command, command.split()[0]} & names else 1


@pytest.fixture(scope="module")
def kimi(installed: Installed) -> Installed:
    """Return the installation, in which the folder `kimi` exists that many commands read."""
    if not (installed.there / "kimi").exists():
        installed.ome("generate", PARTS["alone"]["generate"][0]["line"])
    return installed


ON_CLUSTERS = [(command, line) for command, lines in PARTS["cluster"].items() for line in lines]


def test_refused_connection_is_reported(kimi: Installed) -> None:
    """A server refuses the connection. The command prints an error message, and exits with the documented code."""
    found = kimi.told([(command, line) for line in lines] for command, lines in PARTS["cluster"].items())
    for (command, line), done in zip(ON_CLUSTERS, found, strict=True):
        assert (done.returncode, done.stdout) == (documented(command), ""), (line, done.stderr)
        assert "Cannot connect to host 127.0.0.1:1" in done.stderr and done.stderr.endswith(".\n"), (line, done.stderr)


def test_missing_kubeconfig_is_reported(kimi: Installed) -> None:
    """No kubeconfig names a cluster. Each command prints an error message, and exits with the documented code. All of them
    run in a single process, because they load the same modules.
    """
    found = kimi.told([ON_CLUSTERS], KUBECONFIG=str(kimi.there / "none"))
    for (command, line), done in zip(ON_CLUSTERS, found, strict=True):
        assert (done.returncode, done.stdout) == (documented(command), ""), (command, line, done.stderr)
        assert "no connection to a cluster: " in done.stderr and done.stderr.endswith(".\n"), (command, line, done.stderr)


@pytest.mark.parametrize("command", PARTS["waiting"])
def test_waiting_command_says_so_and_ends_on_a_signal(installed: Installed, command: str) -> None:
    row, heard = PARTS["waiting"][command], []
    words = installed.words(command, row["line"])
    merged = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(words, cwd=installed.there, env=installed.environment, **merged) as process:  # type: ignore[call-overload]
        late = Timer(60, process.kill)  # a line that never comes fails this test before the time limit of all tests
        late.start()
        try:
            for text in process.stdout:
                heard.append(text)
                if row["says"] in text:
                    break
            assert row["says"] in "".join(heard), heard
            if command == "ui":
                (address,) = re.findall(r"http://\S+", "".join(heard))
                opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor())
                pages = [opener.open(place, timeout=20).read() for place in (address, address.partition("?")[0])]
                assert b"127.0.0.1:1" in pages[1], pages
            process.send_signal(signal.SIGINT if command == "ui" else signal.SIGTERM)
            heard.append(process.stdout.read())
            assert process.wait(30) == row.get("code", 0), heard
        finally:
            late.cancel()
            process.kill()
    assert row["says"] in "".join(heard) and "Traceback" not in "".join(heard), heard


def test_commands_for_local_clusters_print_expected_output(installed: Installed) -> None:
    rows = PARTS["local"]
    found = installed.told([(command, row["line"])] for command, row in rows.items())
    for row, done in zip(rows.values(), found, strict=True):
        assert done.returncode == row["code"] and row["says"] in done.stdout + done.stderr, done


def test_agent_and_operator_report_a_missing_cluster(installed: Installed) -> None:
    rows = ("operator", "--kubeconfig none"), ("agent", "--node n --root $HERE/models --kubeconfig none")
    for done in installed.told([row] for row in rows):
        assert done.returncode == 1 and "no connection to a cluster: " in done.stderr, done
