"""Tests of the three objects in docs/your-own-model.md: they are as short as the page states, valid, and refer to each
other.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ome_operator.api import InferenceService, Model, Runtime
from ome_operator.cli.app import app
from ome_operator.core.selection.model_profile import profile_of
from ome_operator.core.selection.runtime import select
from tests.support import parts
from tests.support.parts import ROOT, good

PAGE = (ROOT / "docs/your-own-model.md").read_text(encoding="utf-8")
BLOCKS: list[str] = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
KINDS = (Model, Runtime, InferenceService)


def written(folder: Path) -> Path:
    for number, block in enumerate(BLOCKS):
        (folder / f"{number}.yaml").write_text(block)
    return folder


def test_the_page_counts_its_own_lines() -> None:
    said = re.search(r"they have (\d+), (\d+) and (\d+) lines", PAGE)
    assert said is not None
    assert [len(block.splitlines()) for block in BLOCKS] == [int(number) for number in said.groups()]


def test_lint_finds_nothing(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["lint", "-f", str(written(tmp_path))])
    assert (done.exit_code, done.stdout) == (0, "no findings\n")


@pytest.mark.parametrize("left_out", ["", "modelFormat", "modelArchitecture"])
def test_the_runtime_is_selected_because_both_state_the_same(left_out: str) -> None:
    bodies: list[dict[str, Any]] = [yaml.safe_load(block) for block in BLOCKS]
    bodies[0]["spec"].pop(left_out, None)
    model, runtime, service = (good(kind.parse(body)) for kind, body in zip(KINDS, bodies, strict=True))
    selection = select(service, profile_of(model), parts.deps(model, runtime))
    assert (selection.best is not None) == (not left_out)
    if left_out:
        assert f"asks for {left_out}: " in selection.sentence(model.name)
