"""Tests of `ome scale --simulate`: the results of all controllers, and the plot."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ome_operator.cli.app import app

LOAD = "seconds,rate,prompt,answer\n300,1,8000,500\n300,4,8000,500\n"


@pytest.fixture
def load(tmp_path: Path) -> str:
    """Return the path of a file with a short load."""
    path = tmp_path / "load.csv"
    path.write_text(LOAD)
    return str(path)


def run(*words: str) -> tuple[int, str]:
    """Return the exit code and the output of `ome scale`."""
    done = CliRunner().invoke(app, ["scale", *words])
    return done.exit_code, done.output + (str(done.exception) if done.exception else "")


def test_scale_simulate_prints_each_controller(load: str) -> None:
    code, said = run("--simulate", load)
    assert code == 0
    for name in ("ours", "fixed at the peak", "HPA on CPU", "KEDA on queue length"):
        assert f"\n{name}: " in said
    assert "oracle" not in said and " min: " in said


def test_oracle_and_plot_are_printed_on_request(load: str, tmp_path: Path) -> None:
    code, said = run("--simulate", load, "--oracle", "--plot", str(tmp_path / "load.svg"))
    assert code == 0
    assert "| oracle |" in said and "goodput at least" in said
    assert (tmp_path / "load.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name a SERVICE"),
        (("svc", "--simulate", "steps"), "leave out SERVICE"),
        (("--simulate", "nothing"), "there is no trace nothing"),
        (("--simulate", "steps", "--plot", "x.svg"), "add --oracle"),
        (("--simulate", "steps", "--oracle", "--plot", "/nonexistent/x.svg"), "in a folder that exists"),
        (("--simulate", "steps", "--oracle", "--plot", "/"), "in a folder that exists"),
        (("--simulate", "steps", "-o", "json"), "leave out --output"),
        (("svc", "--oracle"), "--oracle is for simulations only: add --simulate"),
        (("svc", "--plot", "x.svg"), "--plot is for simulations only: add --simulate"),
    ],
)
def test_invalid_input_gives_a_one_line_error(words: tuple[str, ...], said: str) -> None:
    code, found = run(*words)
    assert code == 1 and said in found
