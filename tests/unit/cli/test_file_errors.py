"""Tests that a file which cannot be read is named once, with the reason in words, by every command that reads files."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ome_operator.cli.app import app
from ome_operator.errors import UserError

COMMANDS = {
    "lint": "lint -f {}",
    "render": "render -f {}",
    "fit": "fit -f {}",
    "diff": "diff -f {}",
    "generate": "generate --from {}",
    "plan": "plan --lengths {}",
    "replay": "replay {}",
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00kind: \x80"], ids=["absent", "no text"])
def test_an_unreadable_file_is_named_once_with_the_reason(words: str, content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    if content is not None:
        file.write_bytes(content)
    result = CliRunner().invoke(app, words.format(file).split(), env={"KUBECONFIG": str(tmp_path / "none")})
    assert result.exit_code != 0
    assert isinstance(result.exception, UserError | SystemExit)
    said = result.output + str(result.exception)
    assert "Errno" not in said and "codec" not in said
    assert said.count(str(file)) <= 1


def test_url_in_place_of_a_file_suggests_curl() -> None:
    said = str(CliRunner().invoke(app, ["lint", "-f", "https://example.com/a.yaml"]).exception)
    assert said.startswith("https://example.com/a.yaml cannot be read: ") and "curl -fsSL URL" in said
