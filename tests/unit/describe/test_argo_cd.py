"""Tests that the files for Argo CD are up to date, and cover every kind that users apply or see."""

from pathlib import Path

import yaml

from ome_operator.api.kinds import KINDS
from ome_operator.core.reasons import REASONS
from ome_operator.describe import argo_cd


def test_committed_argo_cd_files_equal_the_generated_ones() -> None:
    assert argo_cd.differences() == [], "run python -m ome_operator.describe.argo_cd"


def test_changed_missing_and_superfluous_argo_cd_files_are_named(tmp_path: Path) -> None:
    (tmp_path / argo_cd.LUA).parent.mkdir(parents=True)
    (tmp_path / argo_cd.LUA).write_text("return {}\n")
    argo_cd.write(tmp_path)
    assert argo_cd.differences(tmp_path) == []
    folder = argo_cd.FOLDER / "ome.io" / "RoleScale"
    (tmp_path / folder / "health.lua").unlink()
    (tmp_path / folder / "left.yaml").write_text("")
    assert argo_cd.differences(tmp_path) == [str(folder / "health.lua"), str(folder / "left.yaml")]
    argo_cd.write(tmp_path)
    assert argo_cd.differences(tmp_path) == []


def test_argo_cd_patch_has_a_health_check_for_every_kind() -> None:
    patch = yaml.safe_load((argo_cd.ROOT / argo_cd.CHART).read_text())
    lua = (argo_cd.ROOT / argo_cd.LUA).read_text()
    kinds = [kind for kind in KINDS if kind.kind not in ("NodeModels", "NodeFaults")]
    assert patch == {"data": {f"resource.customizations.health.{kind.group}_{kind.kind}": lua for kind in kinds}}


def test_health_script_names_existing_reasons() -> None:
    (line,) = [line for line in (argo_cd.ROOT / argo_cd.LUA).read_text().splitlines() if line.startswith("local held")]
    words = [part.partition("=")[0].strip() for part in line.partition("{")[2].split(",")]
    assert words and {*words} <= REASONS.keys()
    assert '"ProgressDeadlineExceeded"' in (argo_cd.ROOT / argo_cd.LUA).read_text()
