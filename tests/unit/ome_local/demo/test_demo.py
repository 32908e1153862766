"""Tests of which clusters a demo may use."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ome_local import layout, options, spec
from ome_local.demo import demo
from ome_local.demo.cli import app
from ome_operator.errors import UserError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home directory without a cluster."""
    monkeypatch.setenv("OME_LOCAL_HOME", str(tmp_path / "clusters"))
    return tmp_path


def made(name: str, by: str) -> layout.Layout:
    """Create the files of a cluster with this name, and return its layout."""
    at = layout.layout(name)
    at.make()
    spec.save(at, spec.ClusterFile(spec.Spec(demo=by), {}))
    return at


@pytest.mark.parametrize(
    ("by", "said"),
    [("/elsewhere", "was created by the demo of /elsewhere: "), ("", "was not created by this demo: ")],
)
def test_demo_does_not_use_or_stop_a_foreign_cluster(home: Path, by: str, said: str) -> None:
    """The demo neither uses nor stops a cluster that it has not created."""
    at = made("ome-demo", by)
    for act in (lambda: demo.run(1.0), demo.remove):
        with pytest.raises(
            UserError, match="`ome demo --name OTHER` creates another cluster next to it, and `ome local down "
        ) as why:
            act()
        assert said in str(why.value)
    assert at.spec.exists()


@pytest.mark.parametrize("named", [(), *((one,) for one in options.EXTRAS), options.EXTRAS])
def test_demo_command_plans_a_cluster_with_every_optional_program(
    home: Path, monkeypatch: pytest.MonkeyPatch, named: tuple[str, ...]
) -> None:
    """The command `ome local demo` passes its options to the demo, which plans a cluster with all optional programs. Nothing
    is started.
    """
    wanted: list[spec.Spec] = []

    def planned(name: str, asked: spec.Spec, within_s: float) -> None:
        wanted.append(asked)
        raise UserError("planned")

    monkeypatch.setattr(demo, "Demo", planned)
    with pytest.raises(UserError, match="planned"):
        CliRunner().invoke(app, [word for one in named for word in ("--with", one)], catch_exceptions=False)
    assert {one for one in options.EXTRAS if getattr(wanted[0], one)} == set(named)


def test_demo_down_removes_only_the_demo_of_its_checkout(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = made("mine", demo.installation())
    made("ome-demo", "/elsewhere")
    demo.remove("mine")
    assert capsys.readouterr().out == "The demo was removed.\n"
    assert not at.root.exists() and layout.known_clusters() == ["ome-demo"]


def test_missing_charts_end_the_demo_before_a_cluster_is_created(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the installed package contains no charts, the demo ends with a message before it creates a cluster."""

    def missing(folder: str) -> Path:
        raise UserError(f"There is no {folder}")

    monkeypatch.setattr(demo, "shipped_folder", missing)
    with pytest.raises(UserError, match="There is no charts"):
        demo.run(1.0)
    assert layout.known_clusters() == []
