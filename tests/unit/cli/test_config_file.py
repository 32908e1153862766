"""Tests of `ome operator --config`: every option in the file, precedence, and refusals that name the file, the key and the
fix.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ome_operator.cli.operator import app
from ome_operator.errors import UserError
from ome_operator.settings import Settings
from tests.support import parts
from tests.support.operator_options import OPTIONS, SAMPLES, caught, field, start, words

NEEDS: dict[str, dict[str, Any]] = {"cluster-wide-kinds": {"watch-namespace": ["team-a"]}}
"""Option -> further options that have to be set together with it."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    return caught(monkeypatch)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "operator.yaml"


def test_every_option_has_two_sample_values() -> None:
    assert list(SAMPLES) == list(OPTIONS), "a new option needs two values here"


@pytest.mark.parametrize("key", SAMPLES)
def test_config_file_sets_the_same_field_as_the_flag(key: str, file: Path, started: list[Settings]) -> None:
    needs = NEEDS.get(key, {})
    file.write_text(yaml.safe_dump({key: SAMPLES[key][0], **needs}))
    others = [word for name, value in needs.items() for word in words(name, value)]
    start(["--config", str(file)])
    start([*words(key, SAMPLES[key][0]), *others])
    start(others)
    by_file, by_flag, default = started
    assert by_file == by_flag
    assert field(by_file, OPTIONS[key]) != field(default, OPTIONS[key]), "the sample differs from the default"


@pytest.mark.parametrize("key", SAMPLES)
def test_flag_overrides_config_file(key: str, file: Path, started: list[Settings]) -> None:
    file.write_text(yaml.safe_dump({key: SAMPLES[key][0]}))
    start(["--config", str(file), *words(key, SAMPLES[key][1])])
    start(words(key, SAMPLES[key][1]))
    assert started[0] == started[1]


def test_an_environment_variable_takes_precedence_over_the_file(
    file: Path, started: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("identity: from-file\nkubeconfig: /from/file\n")
    monkeypatch.setenv("POD_UID", "from-pod")
    start(["--config", str(file)])
    assert (started[0].identity, started[0].kubeconfig) == ("from-pod", Path("/from/file"))
    assert started[0].health_port == 18081, "a kubeconfig in the file has the effect of the flag"


def test_documented_example_config_is_accepted(file: Path, started: list[Settings]) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", (parts.ROOT / "docs/options.md").read_text(), re.S)
    file.write_text(example)
    start(["--config", str(file), "--gang-timeout", "90"])
    assert (started[0].policy.gang_timeout, started[0].lint_refuse) == (90.0, False)
    assert (started[0].watch_namespaces, started[0].waves) == (("team-a", "team-b"), ("1", "25%", "100%"))


def test_an_empty_file_sets_nothing(file: Path, started: list[Settings]) -> None:
    file.write_text("# Nothing yet.\n")
    start(["--config", str(file)])
    start([])
    assert started[0] == started[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gang-timout: 60", "gang-timout is not an option: write gang-timeout."),
        ("gangTimeout: 60", "gangTimeout is not an option: write gang-timeout."),
        ("gang_timeout: 60", "gang_timeout is not an option: write gang-timeout."),
        ("--workers: 3", "--workers is not an option: write workers."),
        ("no-lint-refuse: true", "no-lint-refuse is not an option: write lint-refuse: false."),
        ("zzzzzz: 1", "zzzzzz is not an option: `ome operator --help` lists all"),
        ("1: 2", "1 is not an option"),
        ("gang-timeout: 4000", "gang-timeout is 4000: write a number from 0 to 3600."),
        ("gang-timeout: -1", "gang-timeout is -1: write a number from 0 to 3600."),
        ("gang-timeout: true", "gang-timeout is true: write a number"),
        ("gang-timeout: '60'", 'gang-timeout is "60": write a number'),
        ("gang-timeout:", "gang-timeout is null: write a number"),
        ("models-per-namespace: -1", "models-per-namespace is -1: write a whole number of at least 0."),
        ("workers: 1.5", "workers is 1.5: write a whole number of at least 1."),
        (f"router-watch: {10**400}", "router-watch is 1000"),
        ("observe: 'yes'", 'observe is "yes": write true or false.'),
        ("preflight: Off", "preflight is false: write Off, Warn or Require."),
        ("preflight: Perhaps", 'preflight is "Perhaps": write Off, Warn or Require.'),
        ("expose: Gateway", 'expose is "Gateway": write Ingress or HTTPRoute, or leave it out.'),
        ("sidecar-image: 5", "sidecar-image is 5: write a string, in quotes"),
        ("watch-namespace: team", 'watch-namespace is "team": write the name of a namespace'),
        ("watch-namespace: [Team]", "watch-namespace=Team: write the name of a namespace"),
        ("pull-secret: [1]", "pull-secret is [1]: write a list of strings"),
        ("waves: {a: 1}", 'waves is {"a": 1}: write a list of whole numbers and percentages'),
        ("waves: [0]", "waves: 0 is not a wave"),
        ("bake: 5", "bake is 5: write a duration such as 90s, 5m or 1h30m."),
        ("bake: soon", "bake: soon is not a duration"),
        ("expose: HTTPRoute", "expose=HTTPRoute needs --gateway=NAMESPACE/NAME."),
        ("cluster-wide-kinds: false", "cluster-wide-kinds requires --watch-namespace"),
        ("well-known-models: /nowhere", "well-known-models: well-known models at /nowhere cannot be read"),
        ("workers: 3\nworkers: 4", "workers is written more than once: keep one of them."),
        ("[1, 2]", "is [1, 2]: write a map of options"),
        ("a: [", "cannot be read as YAML"),
        ("a: 1\n---\nb: 2", "cannot be read as YAML: it contains several documents"),
        ("#" * 2**20 + "#", "has more than 1048576 characters"),
    ],
)
def test_config_error_names_file_key_and_remedy(text: str, message: str, file: Path, started: list[Settings]) -> None:
    file.write_text(text)
    result = CliRunner().invoke(app, ["--config", str(file)])
    assert isinstance(result.exception, UserError), result.output
    assert str(result.exception).startswith(str(file)) and message in str(result.exception)
    assert started == []


def test_missing_config_file_is_refused(file: Path) -> None:
    result = CliRunner().invoke(app, ["--config", str(file)])
    assert "cannot be read" in str(result.exception) and "Correct the path" in str(result.exception)


def test_flags_enforce_the_declared_bounds(started: list[Settings]) -> None:
    bounded = [declared for declared in OPTIONS.values() if declared.option.ge is not None]
    assert len(bounded) >= 5
    for declared in bounded:
        for outside in (declared.option.ge - 1, *([declared.option.le + 1] if declared.option.le is not None else [])):
            assert CliRunner().invoke(app, [f"--{declared.key}={outside:g}"]).exit_code == 2, declared.key
    assert started == []
