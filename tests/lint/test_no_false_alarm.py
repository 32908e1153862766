"""Tests that a working service has no finding of severity error, and has a warning only if the reason for it is known."""

import itertools
from pathlib import Path

import pytest
import yaml

from ome_operator.cli.generate import bookshelf
from ome_operator.cli.manifests import read_manifests
from ome_operator.cookbook.layout import PlanProposal
from ome_operator.cookbook.manifests import manifests
from tests.conftest import SOAK
from tests.support.linting import found, grave, looked_at
from tests.support.overlays import LINT
from tests.support.parts import ROOT
from tests.unit.cookbook.test_combinations import answer, asks

WAITS = "waiting-longer: SGLANG_DISAGGREGATION_WAITING_TIMEOUT is 100000 s, but the router gives up after 600 s"
KNOWN = {
    "runtimes/srt/kimi-k2-pd-seed-rt.yaml": [WAITS],  # exactly as it was published
}
"""File of config/ -> expected warnings."""
GUIDE = "0.4.9.post2"
"""The version of the model vendor's guide, which the cookbook reproduces exactly."""
CONFIG = sorted([*(ROOT / "config/runtimes").rglob("*.yaml"), *(ROOT / "config/samples/isvc").rglob("*.yaml")])
WORKING = {
    "apart": ["sglang", "sglang", "sglang-router"],
    "chosen": ["sglang"],
    "containers": ["sglang"],
    "dense-awq": ["sglang"],
    "digest": ["sglang"],
    "embedding": ["sglang"],
    "folded": ["sglang", "sglang", "sglang-router"],
    "gateway": [],  # it runs a program that starts engines with its own flags
    "nodes": ["sglang"],
    "overridden": ["sglang"],
    "single": ["sglang"],
    "trtllm": ["tensorrt-llm"],
    "unknown": [],
    "vllm": ["vllm", "vllm"],
}
"""File of a working service -> the programs that are recognized in it."""


RIGHT = {
    "apart": [
        "cache-aware-random: sglang-router 0.2.2 with --pd-disaggregation ignores the policy cache_aware, its default",
    ],
    "folded": [
        "router-everywhere: --service-discovery-namespace is not given",  # Its service account may read all of them.
        "liveness-blind: ranks above 0 answer /health with 200 in every state",  # Its workers also have the probe.
        "probe-hurried: livenessProbe requests /health with a time-out of 1 s",
    ],
}
"""File of a working service -> expected warnings."""


@pytest.mark.parametrize("path", CONFIG, ids=lambda path: str(path.relative_to(ROOT / "config")))
def test_lint_reports_only_known_errors_for_shipped_manifests(path: Path) -> None:
    assert grave(found(read_manifests([path], "default"))) == KNOWN.get(str(path.relative_to(ROOT / "config")), [])


def test_catalog_as_a_whole_has_only_known_findings() -> None:
    looked = looked_at(read_manifests([ROOT / "config"], "default"))
    assert len(looked) >= 24 and all(subject.roles for subject in looked)
    assert grave(found(read_manifests([ROOT / "config"], "default"))) == [WAITS]


def test_generated_manifests_have_only_known_findings() -> None:
    """The manifests of every recipe of `ome generate` have no error or warning except known ones, for every version of its
    engine, without options and with 16 nodes. Except in `make soak`, only every fifth recipe is checked.
    """
    shelf = bookshelf()
    plans = [
        made
        for ask in itertools.islice(asks(shelf), 0, None, 1 if SOAK else 5)
        if isinstance(made := answer(ask, shelf), PlanProposal)
    ]
    assert len(plans) > 100
    said = {}
    for made in plans:
        bodies = [
            body for body in yaml.load_all(manifests(made).all, yaml.CSafeLoader) if body["apiVersion"].startswith("ome.io")
        ]
        known = [WAITS] if made.engine.version == GUIDE and made.request.strategy == "pd" else []
        if (problems := grave(found(bodies, whole=False))) != known:
            said[str(made.request)] = problems
    assert said == {}


@pytest.mark.parametrize("name", sorted(WORKING))
def test_services_in_ome_style_have_only_known_findings(name: str) -> None:
    bodies = read_manifests([LINT / "working" / f"{name}.yaml"], "default")
    programs = [start.engine for subject in looked_at(bodies) for role in subject.roles if (start := role.launch)]
    assert programs == WORKING[name]
    assert grave(found(bodies)) == RIGHT.get(name, [])


def test_corpus_has_at_least_twelve_working_files() -> None:
    assert {path.stem for path in (LINT / "working").glob("*.yaml")} == WORKING.keys()
    assert len(WORKING) >= 12
