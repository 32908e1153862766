"""Tests that the commands in README.md and on the pages work exactly as they are written. Commands that need no cluster
are run. All other commands of this project must get as far as the search for a cluster.
"""

import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from ome_operator.api.kinds import KINDS
from ome_operator.cli.app import app
from tests.support.parts import ROOT, read_documents

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "charts").glob("*/README.md"))]
LISTED: dict[str, Any] = read_documents(ROOT / "tests/data/page_commands.yaml")[0]
COMMANDS: Any = typer.main.get_command(app)


def lines(block: str) -> list[str]:
    """Return the commands of a block. Continued lines are joined, and comments behind a command are removed."""
    joined = re.sub(r"\\\n\s*", "", block)
    return [line for text in joined.splitlines() if (line := re.sub(r"\s+# .*$", "", text.strip()))]


def blocks(page: Path) -> list[list[str]]:
    """Return the commands on a page: its shell blocks, and the lines that begin with `$` in other blocks."""
    found = []
    for language, block in re.findall(r"^ *```(\w*)\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL):
        typed = block if language == "sh" else "\n".join(re.findall(r"^ *\$ (.*)$", block, re.MULTILINE))
        found.append(lines(typed))
    return [block for block in found if block]


ALL = [(page.relative_to(ROOT), block) for page in PAGES for block in blocks(page)]
OFFLINE = [(str(page), run) for page, block in ALL if (run := [line for line in block if line in LISTED["offline"]])]


def test_documented_commands_equal_the_listed_commands() -> None:
    """Every command on a page is in the list of commands, and every listed command is on a page. A new command has to be run
    by a test, or its entry has to state why it cannot be run.
    """
    typed = {line for _, block in ALL for line in block}
    listed = [*LISTED["offline"], *LISTED["refused"], *LISTED["elsewhere"]]
    assert sorted(typed - {*listed}) == [], "tests/data/page_commands.yaml does not list them"
    assert sorted({*listed} - typed) == [], "no page has them any more"
    assert len(listed) == len({*listed})
    ours = [line for line in LISTED["elsewhere"] if re.match(r"ome (?!local|operator|--)(?!.*ome local)", line)]
    assert ours == ["ome generate"], "all other commands of ours can be run without a cluster"


RELEASES = {"ome-crd": "ome-crd", "ome-resources": "ome"}
"""The release of each chart, as the README installs them."""


def test_helm_commands_name_the_releases_of_the_readme() -> None:
    """The helm commands on all pages name the releases of the README. `helm upgrade` of a name that was never installed
    fails, and a second release of the same objects is refused.
    """
    found = []
    for page in PAGES:
        for line in (each for where, block in ALL if where == page.relative_to(ROOT) for each in block):
            if chart := re.match(r"helm (?:upgrade|install)(?: --install)? (\S+) \S*charts/(\S+)", line):
                found.append((page.name, chart[1], line))
                own = re.search(r"operatorClass=(\S+)", line)  # a second operator of the cluster
                if page.name == "migrate.md" and chart[2] == "ome-resources":
                    assert chart[1] == "ome-operator", "OME's own release is called ome"
                elif own is None:
                    assert chart[1] == RELEASES[chart[2]], f"{page.name}: {line}"
        for name in re.findall(r"helm (?:test|rollback|uninstall) ([a-z][\w-]*)", page.read_text()):
            assert name in RELEASES.values(), f"{page.name}: {name}"
    assert {(page, name) for page, name, _ in found if page == "README.md"} >= {
        ("README.md", name) for name in RELEASES.values()
    }


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which commands run. It has the files that pages assume, and `ome` and a stand-in for kubectl in
    bin/.
    """
    at = tmp_path_factory.mktemp("desk")
    for name in ("config", "tests"):
        (at / name).symlink_to(ROOT / name)
    samples = ROOT / "config/samples/isvc/moonshotai"
    (at / "deploy").mkdir()
    for name in ("service.yaml", "isvc.yaml", "deploy/service.yaml"):
        shutil.copy(samples / "kimi-k2-pd.yaml", at / name)
    for name in ("runtime.yaml", "kimi-k2-pd-rt.yaml", "my-service.yaml", "deploy/runtime.yaml"):
        shutil.copy(ROOT / "config/runtimes/srt/kimi-k2-pd-rt.yaml", at / name)
    shutil.copy(ROOT / "config/models/moonshotai/Kimi-K2-Instruct.yaml", at / "deploy/model.yaml")
    with (at / "my-service.yaml").open("a") as file:
        file.write("---\n" + (samples / "kimi-k2-pd.yaml").read_text())
    rows = (ROOT / "ome_operator/sizing/data/calibration.csv").read_text().splitlines(keepends=True)
    (at / "runs.csv").write_text("".join(rows[:3]))
    (at / "mix.yaml").write_text("- {in: 2000, out: 100, share: 0.8}\n- {in: 8000, out: 500, share: 0.2}\n")
    (at / "kimi-k2-instruct.json").write_bytes(gzip.decompress((ROOT / "tests/incidents/rank-exits.json.gz").read_bytes()))
    (at / "bin").mkdir()
    program(at / "bin/ome", f'exec {sys.executable} -m ome_operator "$@"')
    program(
        at / "bin/kubectl",
        'case "$1" in get) cat service.yaml;; apply) test "$(grep -c "^kind: ")" -gt 2;; *) exit 9;; esac',
    )
    return at


def program(path: Path, text: str) -> None:
    """Write a short program."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(("page", "block"), OFFLINE, ids=lambda value: value if isinstance(value, str) else "")
def test_commands_without_a_cluster_run(page: str, block: list[str], desk: Path) -> None:
    """The commands that need no cluster run without an error. Each block runs line by line in a single shell, as if a user
    typed it.
    """
    script = "set -o pipefail\n" + "".join(f"{line}\necho $? >&3\n" for line in block)
    environment = {**os.environ, "PATH": f"{desk / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    with (desk / "codes").open("w+") as codes:
        command = f"exec 3>&{codes.fileno()}\n{script}"
        done = subprocess.run(
            ["bash", "-c", command], cwd=desk, env=environment, capture_output=True, text=True, check=False,
            pass_fds=[codes.fileno()], stdin=subprocess.DEVNULL,
        )  # fmt: skip
        codes.seek(0)
        ended = [int(code) for code in codes.read().split()]
    assert ended == [LISTED["offline"][line] for line in block], f"{page}: {done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("line", LISTED["refused"])
def test_commands_with_a_cluster_fail_only_for_lack_of_one(line: str, desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that needs a cluster fails only because there is none, so its name and options are right."""
    monkeypatch.chdir(desk)
    monkeypatch.setenv("KUBECONFIG", "nowhere")
    words = shlex.split(line.removeprefix("kubectl "))
    assert words[0] == "ome"
    done = CliRunner().invoke(app, words[1:])
    assert done.exit_code in (1, 2)
    assert "no connection to a cluster: nowhere does not exist" in f"{done.exception} {done.output}"


def leaf(words: list[str]) -> tuple[Any, list[str]]:
    """Return the command that these words call, and the words after it."""
    command, context = COMMANDS, COMMANDS.make_context("ome", [], resilient_parsing=True)
    while words and hasattr(command, "get_command") and (below := command.get_command(context, words[0])):
        command, words = below, words[1:]
    return command, words


def options(command: Any) -> set[str]:
    """Return the options of a command and of its subcommands, because `ome explain` and `ome plan` accept a missing
    subcommand.
    """
    below = getattr(command, "commands", {}).values()
    return {name for param in command.params for name in param.opts + param.secondary_opts} | {
        name for each in below for name in options(each)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name if page.parent.name != "charts" else page.parent.name)
def test_commands_in_sentences_exist(page: Path) -> None:
    """Commands in sentences exist, and so do their options, such as `ome undo NAME --to …`. Commands that a page describes
    as missing are skipped.
    """
    there = page.read_text().partition("\n## What is missing")[0]
    text = re.sub(r"^ *```.*?^ *```", "", there, flags=re.MULTILINE | re.DOTALL)
    for span in re.findall(r"`(?:kubectl )?ome ([a-z][^`]*)`", text):
        command, rest = leaf(re.sub(r"\|.*", "", span).replace("[", " ").replace("]", " ").split())
        assert command is not COMMANDS, f"{page.name}: ome {span}"
        if command.name in ("kubectl", "helm"):
            continue
        used = {word.partition("=")[0].rstrip(",;.") for word in rest if re.match(r"--?[a-z]", word)}
        assert used <= options(command) | {"--help"}, f"{page.name}: ome {span}"


def test_files_in_documented_commands_exist() -> None:
    """The files of this repository that commands name exist. Files of users have other names."""
    for page, block in ALL:
        for word in (word for line in block for word in line.split()):
            if re.match(r"(config|charts|images|examples|tests)/", word):
                assert (ROOT / word).exists(), f"{page}: {word}"


def test_documented_listings_have_the_columns_of_their_crd() -> None:
    """A listing of `kubectl get` on a page has the columns that the CRD of the kind defines, in their order, with "…" in the
    place of columns that are left out.
    """
    kinds = {name: kind for kind in KINDS for name in (kind.plural, kind.kind.lower(), *kind.short)}
    listings = [
        (kinds[name], head.split())
        for page in PAGES
        for name, head in re.findall(r"^ *\$ kubectl get (\w+)[^\n]*\n *(NAME .*)$", page.read_text(), re.MULTILINE)
        if name in kinds
    ]
    assert len(listings) >= 3
    for kind, head in listings:
        columns = " ".join(["NAME", *(column.name.upper() for column in kind.columns if not column.wide)])
        shown = [re.escape(word) if word != "…" else r"\S.*?" for word in head]
        assert re.fullmatch(" ".join(shown), columns), (kind.kind, head, columns)
