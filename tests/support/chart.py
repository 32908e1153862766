"""Renders the operator's chart with helm, without a cluster."""

import json
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ome_local.binaries import ensure

CHART = Path(__file__).parents[2] / "charts/ome-resources"


def helm(*words: str) -> "subprocess.CompletedProcess[str]":
    program = ensure.ensure(["helm"])["helm"]
    return subprocess.run([str(program), *words], capture_output=True, text=True, check=False)


def rendered(**values: Any) -> list[dict[str, Any]]:
    """Return the objects of the chart with these values."""
    return [body for body in yaml.load_all(_template(*_words(values)), yaml.CSafeLoader) if body]


def notes(**values: Any) -> str:
    """Return the text that helm prints after an installation with these values. `helm template` does not print this text, so
    it is rendered from a copy of the chart in which the text is part of an object.
    """
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(folder) / CHART.name
        shutil.copytree(CHART, chart)
        (chart / "templates/NOTES.txt").rename(chart / "files/notes.txt")
        shown = chart / "templates/notes.yaml"
        shown.write_text('notes: {{ tpl (.Files.Get "files/notes.txt") . | toJson }}\n')
        done = helm("template", "ome", str(chart), "-n", "ome", "--show-only", "templates/notes.yaml", *_words(values))
    assert done.returncode == 0, done.stderr
    found: str = yaml.safe_load(done.stdout)["notes"]
    return found


def _words(values: dict[str, Any]) -> list[str]:
    return [
        word for name, value in values.items() for word in ("--set-json", f"{name.replace('_', '.')}={json.dumps(value)}")
    ]


@cache
def _template(*words: str) -> str:
    """Return the output of `helm template` with these arguments. The output is cached, because many tests render the same
    values.
    """
    done = helm("template", "ome", str(CHART), "-n", "ome", "--set", "image.repository=r/op", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def only(objects: list[dict[str, Any]], kind: str, name: str = "") -> dict[str, Any]:
    (found,) = [body for body in objects if body["kind"] == kind and name in ("", body["metadata"]["name"])]
    return found


def pod(objects: list[dict[str, Any]], kind: str = "Deployment") -> dict[str, Any]:
    found: dict[str, Any] = only(objects, kind)["spec"]["template"]["spec"]
    return found


def names(objects: list[dict[str, Any]], *kinds: str) -> set[tuple[str, str]]:
    return {(body["metadata"].get("namespace", ""), body["metadata"]["name"]) for body in objects if body["kind"] in kinds}


AGENT = {"enabled": True, "image": {"repository": "r/agent"}}
