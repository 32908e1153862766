"""Tests of the position of a finding in a file, and of the patch with its fix."""

import subprocess
from pathlib import Path

from ome_operator.lint.finding import AutomaticFix, Finding, Location, RuleHit
from ome_operator.lint.rules import RULES
from ome_operator.lint.source import patch, spot

TEXT = """\
# --enable-deepep-moe is gone
kind: InferenceService
metadata: {name: a, namespace: team}
spec:
  engine:
    runner:
      args: [--enable-deepep-moe, --enable-deepep-moe-not] # not --enable-deepep-moe
---
kind: ClusterServingRuntime
metadata:
  name: a
spec:
  engineConfig:
    runner:
      args:
        - --enable-deepep-moe
"""


GONE = AutomaticFix("--enable-deepep-moe", "--moe-a2a-backend=deepep")


def hit(object_: str = "ClusterServingRuntime a", fix: AutomaticFix | None = GONE) -> RuleHit:
    return RuleHit(Location(object_, "spec"), "has no --enable-deepep-moe", "write", fix)


def test_line_of_a_finding_is_located() -> None:
    files = {"b.yaml": "kind: X\nmetadata: {name: a}\n", "a.yaml": TEXT}
    assert spot(files, hit()) == ("a.yaml", 16)
    assert spot(files, hit(fix=None)) == ("a.yaml", 16), "found by the flag in its message"
    assert spot(files, hit("InferenceService team/a")) == ("a.yaml", 7)
    assert spot(files, RuleHit(Location("InferenceService a", "spec"), "nothing", "do")) == ("a.yaml", 1)
    assert spot(files, hit("ClusterBaseModel a")) is None


def test_patch_changes_only_the_object_with_the_finding(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(TEXT)
    diff = patch({"a.yaml": TEXT}, [Finding(RULES["flag-removed"], "team/a", hit("InferenceService team/a"))])
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=diff, text=True, check=True)
    mended = (tmp_path / "a.yaml").read_text()
    assert "args: [--moe-a2a-backend=deepep, --enable-deepep-moe-not] # not --enable-deepep-moe" in mended
    assert "- --enable-deepep-moe\n" in mended, "the other object is unchanged"
    assert patch({"a.yaml": TEXT}, [Finding(RULES["flag-removed"], "", hit(fix=None))]) == ""
