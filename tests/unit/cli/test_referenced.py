"""Tests of which files of a catalog are parsed to find the objects that a user refers to."""

from pathlib import Path

import pytest

from ome_operator.cli.live.linted import subjects
from ome_operator.cli.manifests import read_manifests, read_referenced
from ome_operator.engines.flags import packaged_versions
from ome_operator.lint import report, rules
from tests.support import yamls
from tests.support.linting import catalog
from tests.support.parts import ROOT

CONFIG = ROOT / "config"
FILES = [*sorted((CONFIG / "samples").rglob("*.yaml")), *sorted((ROOT / "tests/golden").glob("*/in.yaml"))]


def told(
    given: list[dict[str, object]], beside: list[dict[str, object]]
) -> list[tuple[str, str, tuple[str, ...], str, str]]:
    found = list(subjects(given, beside, packaged_versions()))
    return [
        (each.service, each.runtime, each.problems, each.advice, report.text_report(rules.check(each))) for each in found
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_omitted_catalog_files_do_not_change_the_result(file: Path) -> None:
    given = read_manifests([file], "default")
    assert told(given, read_referenced([CONFIG], [file], "default", given)) == told(given, catalog())


def test_only_referenced_catalog_files_are_parsed(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("kind: [")
    service = yamls.service("team", "s", "kimi-k2-pd-rt", model="kimi-k2-instruct")
    found = read_referenced([CONFIG, tmp_path], [], "default", [service])
    kinds = [body["kind"] for body in found if body["kind"] != "AcceleratorClass"]
    assert {"ClusterBaseModel", "ClusterServingRuntime"} <= set(kinds)
    assert 4 * len(kinds) < len(catalog())


def test_all_files_are_parsed_for_runtime_selection_or_an_unknown_name() -> None:
    chosen = yamls.service("team", "s", "", model="kimi-k2-instruct")
    del chosen["spec"]["runtime"]
    misspelt = yamls.service("team", "s", "kimi-k2-pd-rt", model="kimi-k2-instuct")
    for service in (chosen, misspelt, yamls.runtime("mine", router=False)):
        assert read_referenced([CONFIG], [], "default", [service]) == catalog()
