"""Tests of the findings that commands print in addition to their own result, and of `ome lint` on a cluster with the user's
rights.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ome_operator.cli import connect
from ome_operator.cli.app import app
from ome_operator.cli.live.linted import MOST_LINES
from ome_operator.cli.live.preview import preview
from ome_operator.cli.manifests import read_manifests
from ome_operator.errors import QuestionUnanswered
from ome_operator.kube.errors import Forbidden, NotFound
from tests.support import parts, yamls
from tests.support.fake_api import Call, FakeApi
from tests.support.linting import catalog
from tests.support.overlays import LINT, composed_file

BROKEN = composed_file(LINT / "corpus/flag-removed/deepep.yaml")
FINE = parts.ROOT / "config/samples/isvc/moonshotai/kimi-k2-pd.yaml"
SAID = "refused flag-removed: sglang 0.5.23 has no flag --enable-deepep-moe"


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def broken(*names: str) -> list[dict[str, Any]]:
    """Return the objects of a file that the operator refuses, with a copy of its service for each name, each in its own
    namespace.
    """
    given = [*catalog(), *read_manifests([BROKEN], "default")]
    services = [body for body in given if body["kind"] == "InferenceService"]
    others = [body for body in given if body["kind"] != "InferenceService"]
    copies = [
        {**body, "metadata": {"name": name, "namespace": f"of-{name}", "uid": name}} for name in names for body in services
    ]
    return [*others, *copies]


def cluster(*bodies: dict[str, Any], forbidden: str = "") -> FakeApi:
    """Return a cluster with these objects."""

    def inside(call: Call) -> list[dict[str, Any]]:
        if call.kind == forbidden:
            raise Forbidden(f'{call.kind.lower()}s.ome.io is forbidden: User "jane" cannot list resource', 403)
        found = [body for body in bodies if body["kind"] == call.kind]
        return [body for body in found if call.namespace in ("", body["metadata"].get("namespace", ""))]

    def named(call: Call) -> dict[str, Any]:
        found = next((body for body in inside(call) if body["metadata"]["name"] == call.name), None)
        if found is None:
            raise NotFound(f"{call.name} is not there", 404)
        return found

    return FakeApi({"list_objects": inside, "get": named, "served": []})


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let commands use this cluster."""

    def made(api: FakeApi) -> None:
        api.connection = SimpleNamespace(namespace="of-here")  # type: ignore[attr-defined]

        @asynccontextmanager
        async def opened(*_: object) -> AsyncIterator[FakeApi]:
            yield api

        monkeypatch.setattr(connect, "open_client", opened)

    return made


def services_of(result: Result) -> set[str]:
    return {finding["service"] for finding in json.loads(result.stdout)}


def test_lint_checks_the_services_of_a_cluster(answers: Any) -> None:
    answers(cluster(*broken("here", "there")))
    here, named, all_of_them = (run("lint", *words, "-o", "json") for words in ([], ["there", "-n", "of-there"], ["-A"]))
    assert (services_of(here), services_of(named)) == ({"of-here/here"}, {"of-there/there"})
    assert services_of(all_of_them) == {"of-here/here", "of-there/there"}
    assert {result.exit_code for result in (here, named, all_of_them)} == {2}
    assert "flag-removed" in run("lint", "of-there/there").stdout


def test_lint_ignore_annotation_suppresses_findings(answers: Any) -> None:
    bodies = broken("here")
    bodies[-1]["metadata"]["annotations"] = {"ome.io/lint-ignore": "flag-removed, no-such-rule"}
    answers(cluster(*bodies))
    assert run("lint").stdout == "no findings\n"


def test_missing_read_permission_is_reported_without_findings(answers: Any) -> None:
    answers(cluster(*broken("here"), forbidden="ClusterServingRuntime"))
    result = run("lint")
    assert isinstance(result.exception, QuestionUnanswered) and result.stdout == ""
    assert 'User "jane" cannot list' in str(result.exception)
    assert str(result.exception).endswith("Use -f to check files instead.")


def test_lint_of_an_absent_service_fails(answers: Any) -> None:
    answers(cluster(*broken("here")))
    assert "no InferenceService gone in namespace of-here" in str(run("lint", "gone").exception)


@pytest.mark.parametrize(
    "words",
    [["svc", "-A"], ["svc", "-f", BROKEN], ["-A", "-f", BROKEN], ["--fix"], ["--catalog", "config"]],
)
def test_contradictory_lint_options_are_refused(words: list[object]) -> None:
    assert isinstance(run("lint", *words).exception, QuestionUnanswered)


def test_render_prints_findings_on_stderr() -> None:
    result = run("render", "-f", BROKEN, "--catalog", "config")
    assert (result.exit_code, result.stdout) == (1, "") and SAID.removeprefix("refused ") in result.stderr
    assert "flag" not in run("render", "-f", FINE, "--catalog", "config").stderr


async def test_diff_prints_findings_of_affected_services() -> None:
    *there, given = broken("here")
    found = await preview(cluster(*there), [given])  # type: ignore[arg-type]
    assert any(SAID in sentence for sentence in found.lint)
    fine = [yamls.model("tiny"), yamls.runtime("rt"), yamls.service("team", "svc", "rt", "engine", model="tiny")]
    assert (await preview(cluster(), fine)).lint == ()  # type: ignore[arg-type]


def test_number_of_printed_findings_is_limited(tmp_path: Path) -> None:
    text = BROKEN.read_text().replace("- --enable-deepep-moe", "\n".join(f"- --no-flag-{at}" for at in range(30)))
    indent = next(line for line in BROKEN.read_text().splitlines() if "--enable-deepep-moe" in line).partition("-")[0]
    (tmp_path / "a.yaml").write_text(text.replace("\n- --no", f"\n{indent}- --no"))
    told = [line for line in run("render", "-f", tmp_path, "--catalog", "config").stderr.splitlines() if "flag" in line]
    # The reason why nothing is rendered names three of the 30 flags, and the lines below it the others.
    assert len(told) == 1 + MOST_LINES and "and 27 more" in told[0]
    assert "17 more: `ome lint -f`" in run("render", "-f", tmp_path, "--catalog", "config").stderr


def test_generate_prints_no_findings_about_its_own_output(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["generate", "--hardware", "h200", "--model", "Kimi-K2-Instruct", "-o", "yaml"]
    fine = run(*words)
    assert fine.exit_code == 0 and "warning" not in fine.stderr and "error" not in fine.stderr
    asked = []
    monkeypatch.setattr("ome_operator.cli.live.linted.lines", lambda *of: asked.append(of[1]) or ("a/b: error x: y; z",))
    assert "a/b: error x: y; z" in run(*words).stderr and len(asked[0]) == 1, "its service is checked"
