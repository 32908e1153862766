"""Other software of a cluster, built from Go modules: Helm 4, kstatus, and the Lua of Argo CD.

The first build takes minutes, so the tests that need it run with `make e2e`.
"""

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ome_local.binaries import ensure, gobuild
from ome_local.binaries.versions import Tool
from tests.support.registry import GOMODS

HELM = Tool(name="helm", module="helm", version="4.3.1", package="helm.sh/helm/v4/cmd/helm", gomods=GOMODS)
KSTATUS = Tool(name="kstatus", module="kstatus", version="0.37.2", package=".", gomods=GOMODS)
"""A program that prints the results of two versions of kstatus: kubernetes-sigs/cli-utils 0.37.2, and Flux's fork 1.2.2,
which Helm 4.3.1 contains.
"""
ARGO_CD = "3.6.1"
MINUTES = pytest.mark.skipif("OME_E2E" not in os.environ, reason="builds programs for minutes: `make e2e` runs it")


def path(tool: Tool) -> Path:
    """Return the path of the program; build it if it is not in the cache."""
    return ensure.provide([tool])[tool.name]


def argo_cd() -> Path:
    """Return the path of a program that runs Lua as Argo CD does; build it if it is not in the cache. Argo CD requires a
    newer Go than the other modules, which the go command downloads from the module proxy.
    """
    program = ensure.cache_dir() / f"argocd-health-{ARGO_CD}"
    if not program.exists():
        environment = {**os.environ, "GOTOOLCHAIN": "auto", "CGO_ENABLED": "0", "GOWORK": "off"}
        command = [
            gobuild.find_go(ensure.cache_dir()),
            "build",
            "-mod=readonly",
            "-buildvcs=false",
            "-o",
            f"{program}.new",
            ".",
        ]
        subprocess.run(command, cwd=GOMODS / "argocd", env=environment, check=True, timeout=1800)
        Path(f"{program}.new").rename(program)
    return program


def program_answers(program: Path, lines: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the program's answer to each line, as JSON."""
    given = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([program], input=given, capture_output=True, text=True, check=True, timeout=600)
    return [json.loads(line) for line in done.stdout.splitlines()]
