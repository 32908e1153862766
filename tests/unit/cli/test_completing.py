"""Tests of the completion of names in shells and in kubectl."""

import sys

import pytest
from typer.testing import CliRunner

from ome_operator.__main__ import main
from ome_operator.cli import completing
from ome_operator.cli.app import app, commands


def completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """Return the output of `kubectl_complete-ome`."""
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-ome", *words])
    for name in ("_OME_COMPLETE", "_TYPER_COMPLETE_FISH_ACTION", "_TYPER_COMPLETE_ARGS"):
        monkeypatch.setenv(name, "")  # restored afterwards
    completing.kubectl()
    return capsys.readouterr().out.splitlines()


def test_completion_output_has_the_format_of_kubectl(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    *found, directive = completed(monkeypatch, capsys, "st")
    assert [line.split("\t")[0] for line in found] == ["status"] and directive == ":4"
    assert found[0].split("\t")[1].startswith("Show services as trees")
    *options, _ = completed(monkeypatch, capsys, "logs", "svc", "--ti")
    assert [line.split("\t")[0] for line in options] == ["--timestamps"]
    for unknown in ("nonsense", "statsu", "describe"):  # two of them resemble a command
        assert completed(monkeypatch, capsys, unknown, "x") == [":4"]


def test_empty_word_completes_every_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    *found, _ = completed(monkeypatch, capsys, "")
    assert [line.split("\t")[0] for line in found] == commands()
    assert {"local", "demo"} <= {*commands()}, "entry points add the commands of ome_local"


def test_unreachable_cluster_completes_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    assert completed(monkeypatch, capsys, "status", "") == [":4"]


def test_kubectl_plugin_shows_its_name_in_the_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/kubectl-ome", "status", "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert "Usage: kubectl ome status" in capsys.readouterr().out


def test_help_offers_shell_completion() -> None:
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).output
