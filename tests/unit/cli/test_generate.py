"""Tests of `ome generate` on the command line and on a terminal."""

import io
import os
import pty
import re
import sys
import threading
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner, Result

from ome_operator.cli.generate import PARSERS, app
from ome_operator.cli.menu import Item, choose, step
from ome_operator.errors import UserError
from tests.support import parts


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_generated_command_is_the_only_output_on_stdout() -> None:
    done = run("--hardware", "h200", "--model", "Kimi-K2-Instruct")
    assert done.exit_code == 0
    assert done.stdout == (
        "python3 -m sglang.launch_server \\\n  --model-path moonshotai/Kimi-K2-Instruct \\\n  --tp 8 \\\n"
        "  --trust-remote-code\n"
    )
    assert "-o yaml | kubectl apply -f -" in done.stderr


def test_yaml_output_contains_only_yaml() -> None:
    done = run("--hardware", "H200", "--model", "moonshotai/Kimi-K2-Thinking", "--reasoning-parser", "-o", "yaml")
    kinds = [one["kind"] for one in yaml.safe_load_all(done.stdout)]
    assert kinds == ["ClusterBaseModel", "ClusterServingRuntime", "Namespace", "InferenceService"]


def test_generate_writes_three_files_into_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "kimi"
    done = run("--hardware", "h200", "--model", "instruct", "--strategy", "pd", "--nodes", "16", "-o", str(folder))
    assert sorted(one.name for one in folder.iterdir()) == ["model.yaml", "runtime.yaml", "service.yaml"]
    assert (folder / "model.yaml").read_text() == (parts.ROOT / "config/models/moonshotai/Kimi-K2-Instruct.yaml").read_text()
    assert f"kubectl apply -f {folder}" in done.stderr.replace("\n", "")
    assert "--tp-size 96" in done.stdout


@pytest.mark.parametrize(
    "words", [("--tool-call-parser", "kimi_k2"), ("--tool-call-parser=kimi_k2",), ("--tool-call-parser",)]
)
@pytest.mark.parametrize("before", [True, False])
def test_parser_flag_always_has_a_value(words: tuple[str, ...], before: bool) -> None:
    """A flag for a parser always has a value in the output, as on the page of the SGLang cookbook: `--reasoning-parser
    kimi_k2 --tool-call-parser kimi_k2`.
    """
    rest = ("--reasoning-parser", "kimi_k2", "--hardware", "h200", "--model", "Kimi-K2-Thinking")
    done = run(*words, *rest) if before else run(*rest, *words)
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith("  --tool-call-parser kimi_k2 \\\n  --reasoning-parser kimi_k2\n")


def test_parser_of_another_model_is_accepted_with_a_warning() -> None:
    done = run("--hardware", "h200", "--model", "instruct", "--tool-call-parser", "deepseekv3")
    assert "--tool-call-parser deepseekv3" in done.stdout
    assert (
        "writes the output format of the parser kimi_k2; the parser deepseekv3 may fail to parse it"
        in done.stderr.replace("\n", " ")
    )


def test_parser_unknown_to_the_engine_is_refused() -> None:
    done = run("--hardware", "h200", "--model", "instruct", "--tool-call-parser", "kimi")
    assert "does not accept --tool-call-parser kimi: use one of" in str(done.exception)


def test_generate_does_not_overwrite_edited_files(tmp_path: Path) -> None:
    """`ome generate` refuses to overwrite a folder whose files a user has edited. A folder with unchanged files may be
    written again.
    """
    words = ("--hardware", "h200", "--model", "instruct", "-o", str(tmp_path))
    assert run(*words).exit_code == run(*words).exit_code == 0
    edited = tmp_path / "runtime.yaml"
    edited.write_text("mine")
    done = run(*words)
    assert isinstance(done.exception, UserError) and done.stdout == ""
    assert str(done.exception).startswith(f"{edited} exists with different content: name another folder with -o")
    assert edited.read_text() == "mine"
    assert run(*words, "--force").exit_code == 0
    assert edited.read_text() != "mine"


def test_generate_explains_variables_on_stderr() -> None:
    done = run("--hardware", "h200", "--model", "instruct", "--strategy", "pd")
    for name in ("LOCAL_IP", "PREFILL_NODE0", "DECODE_NODE0", "IB_DEVICE", "RANK"):
        assert f"${name}" in done.stdout and f"\n${name}: " in f"\n{done.stderr}"


def test_unwritable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("--hardware", "h200", "--model", "instruct", "-o", str(tmp_path / "file"))
    assert isinstance(done.exception, UserError)
    assert "file cannot be written" in str(done.exception)


def test_every_generated_flag_is_explained() -> None:
    done = run("--hardware", "h200", "--model", "instruct", "--strategy", "pd", "--explain")
    commands, _, reasons = done.stdout.partition("\n\nPrefill:\n")
    used = {word for word in commands.split("# The load balancer")[0].split() if word.startswith("--")}
    explained = {line.split()[0]: line.split("  ", 2)[-1].strip() for line in reasons.splitlines() if line.startswith("  -")}
    assert used <= set(explained)
    assert [flag for flag, why in explained.items() if len(why) < 8] == []


def test_impossible_configuration_gives_a_one_line_error() -> None:
    done = run("--hardware", "h100", "--model", "instruct", "--tp", "8")
    assert isinstance(done.exception, UserError)  # exit code 1 in `ome_operator.__main__`
    assert done.stdout == ""


@pytest.mark.parametrize(
    "words", [("--name", "Kimi K2"), ("--kv-cache-dtype", "a]: {"), ("--engine", "none"), ("--engine-version", "0")]
)
def test_invalid_option_values_give_a_one_line_error(words: tuple[str, ...]) -> None:
    done = run("--hardware", "h200", "--model", "instruct", *words)
    assert isinstance(done.exception, UserError)
    assert "\n" not in str(done.exception)


@pytest.mark.parametrize("words", [(), ("--model", "instruct"), ("--hardware", "h200", "--model", "base", "--nodes", "0")])
def test_invalid_usage_exits_with_2_and_never_prompts_without_a_terminal(words: tuple[str, ...]) -> None:
    assert run(*words).exit_code == 2


ITEMS = [Item("a", "A"), Item("b", "B", why_not="broken"), Item("c", "C")]


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (["\r"], "a"),
        (["\x1b[B", "\r"], "c"),
        (["\x1b[B", "\x1b[B", "\n"], "a"),
        (["\x1b[A", "x", "\r"], "c"),
        (["j", "k", "\r"], "a"),
    ],
)
def test_arrow_keys_select_among_available_items(keys: list[str], value: str) -> None:
    left = iter(keys)
    assert choose("Letter", ITEMS, lambda: next(left), Console(file=io.StringIO())) == value


def test_selection_stays_on_the_only_item() -> None:
    assert step(ITEMS[:2], 0, 1) == 0


def test_generate_prompts_for_options_on_a_terminal(tmp_path: Path) -> None:
    """On a terminal, the command asks for its options. The test presses arrow keys on a real terminal: it chooses H100 (the
    second), Base (the first) and pd (the last), and is asked nothing about parsers.
    """
    out = tmp_path / "stdout"
    pid, terminal = pty.fork()
    if pid == 0:
        os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT), 1)
        os.chdir(parts.ROOT)
        os.execv(sys.executable, [sys.executable, "-m", "ome_operator", "generate"])
    shown: list[bytes] = []
    reader = threading.Thread(target=drain, args=(terminal, shown))
    reader.start()
    for question, keys in (("Hardware platform", b"\x1b[B\r"), ("Model name", b"\r"), ("Deployment strategy", b"\x1b[A\r")):
        wait_for(shown, question, reader)
        os.write(terminal, keys)
    _, status = os.waitpid(pid, 0)
    reader.join(10)
    said = b"".join(shown).decode()
    assert os.waitstatus_to_exitcode(status) == 0, said
    assert "ome generate --hardware h100 --model Kimi-K2-Base --strategy pd" in said
    assert out.read_text().startswith("# Prefill: each of 4 nodes")


def drain(terminal: int, shown: list[bytes]) -> None:
    """Read the output of the terminal until the terminal closes."""
    try:
        while data := os.read(terminal, 4096):
            shown.append(data)
    except OSError:
        return


def wait_for(shown: list[bytes], words: str, reader: threading.Thread) -> None:
    """Wait until the terminal shows a question."""
    while words.encode() not in b"".join(shown):
        reader.join(0.02)
        assert reader.is_alive(), b"".join(shown).decode()


BASE = ("--hardware", "h200", "--model", "Kimi-K2-Instruct")


@pytest.mark.parametrize("name", ["true", "null", "yes", "on", "no", "n"])
def test_name_that_yaml_would_convert_is_quoted(name: str) -> None:
    done = run(*BASE, "--name", name, "-o", "yaml")
    assert done.exit_code == 0, done.output
    *_, space, service = yaml.safe_load_all(done.stdout)
    assert (space["metadata"]["name"], service["metadata"]["name"], service["metadata"]["namespace"]) == (name,) * 3
    assert f'  name: "{name}"\n' in done.stdout


def test_generate_uses_given_name_without_suffix() -> None:
    assert "  name: kimi\n" in run(*BASE, "--name", "kimi", "-o", "yaml").stdout


@pytest.mark.parametrize(
    "option", ["--nodes", "--prefill-nodes", "--decode-nodes", "--gpus-per-node", "--tp", "--dp", "--ep", "--context-length"]
)
def test_number_above_the_limit_is_refused(option: str) -> None:
    done = run(*BASE, option, "999999999999")
    assert done.exit_code == 2
    assert option in done.output and re.search(r"(equal to |<=)\d+\b", done.output), done.output  # depends on typer


@pytest.mark.parametrize(
    "option",
    [
        *PARSERS,
        "--hardware",
        "--model",
        "--strategy",
        "--engine",
        "--engine-version",
        "--model-path",
        "--host",
        "--name",
        "--output",
    ],
)
@pytest.mark.parametrize("value", ["", " "])
def test_an_option_without_a_value_is_named(option: str, value: str) -> None:
    done = run(*BASE, option, value)
    assert done.exit_code == 2
    assert option in done.output and "value is empty: give a value" in done.output


@pytest.mark.parametrize("name", ["TensorRT-LLM", "trtllm", "trt-llm"])
def test_engine_names_are_those_that_the_planner_accepts(name: str) -> None:
    words = ["--hardware", "h200", "--model", "Kimi-K2-Instruct", "--strategy", "tp+ep"]
    assert run(*words, "--engine", name).output == run(*words, "--engine", "tensorrt-llm").output


def test_engine_version_is_normalized_to_the_image_tag() -> None:
    words = ["--hardware", "h200", "--model", "Kimi-K2-Instruct"]
    assert run(*words, "--engine-version", "v0.5.23").output == run(*words, "--engine-version", "0.5.23").output


@pytest.mark.parametrize("output", ["json", "text"])
def test_unknown_output_format_is_not_used_as_a_folder(output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("--hardware", "h200", "--model", "Kimi-K2-Instruct", "-o", output)
    assert done.exit_code == 2 and f"./{output}" in done.output and not list(tmp_path.iterdir())


def test_file_in_place_of_the_output_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    done = run("--hardware", "h200", "--model", "Kimi-K2-Instruct", "-o", str(tmp_path / "a"))
    assert str(done.exception) == f"{tmp_path / 'a'} cannot be written: File exists"
