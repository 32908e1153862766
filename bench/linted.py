"""Measures the duration of `ome lint` for all of config/, and the cost of the same rules in a reconciliation of the
operator.
"""

import os
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from bench.figures import median
from bench.results import Linted
from ome_operator.api import InferenceService
from ome_operator.cli.live.cluster_from_manifests import build_cluster
from ome_operator.cli.manifests import read_manifests
from ome_operator.core.observed.objects import Deps, Observed
from ome_operator.core.reconcile.sync import sync
from ome_operator.lint.validator import Validator

ROOT = Path(__file__).parent.parent
LINT = [sys.executable, "-m", "ome_operator", "lint", "-f", "config"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Environment variables that let the first run, which is not counted, compile the modules as an installation does. With
PYTHONDONTWRITEBYTECODE, every run would compile them."""


def measure(repeat: int) -> Linted:
    """Return the median of `repeat` runs, each in its own process, and of reconciliations of every service with and without
    the rules.
    """
    seconds = []
    for _ in range(repeat + 1):
        began = time.monotonic()
        subprocess.run(LINT, check=True, capture_output=True, cwd=ROOT, env=ENVIRONMENT)
        seconds.append(time.monotonic() - began)
    cluster = build_cluster(read_manifests([ROOT / "config"], "default"), model_agent=False)
    services = [kept.parsed for kept in cluster.services() if isinstance(kept.parsed, InferenceService)]
    deps = cluster.deps()
    _passes(services, deps)  # fill caches that do not depend on the rules, and read the files of versions
    _passes(services, replace(deps, judge=Validator()))
    judged = replace(deps, judge=Validator())
    without, first, again = _passes(services, deps), _passes(services, judged), _passes(services, judged)
    return Linted(median(seconds[1:]), len(services), without, first, again)


def _passes(services: list[InferenceService], deps: Deps) -> float:
    """Return the mean CPU seconds of a reconciliation of new services."""
    now = datetime.now(UTC)
    began = time.process_time()
    for service in services:
        sync(service, deps, Observed(), now)
    return (time.process_time() - began) / len(services)
