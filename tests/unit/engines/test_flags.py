"""Tests of command lines as data: flags from the files, arguments of users, and files in a user's own folder."""

import json
from pathlib import Path

import pytest

from ome_operator.engines.flags import (
    CommandLine,
    DataError,
    Flag,
    Versions,
    command_line,
    packaged_versions,
    replacements,
    translations,
    usage_error,
)

NEWEST = "sglang-0.5.23"


@pytest.fixture(scope="module")
def newest() -> CommandLine:
    return command_line(NEWEST)


def test_flag_file_of_every_version_is_read() -> None:
    names = [
        f"{engine}-{version}"
        for engine in ("sglang", "vllm", "sglang-router")
        for version in packaged_versions().versions_of(engine)
    ]
    assert {"sglang-0.4.9.post2", NEWEST, "vllm-0.32.0", "sglang-router-0.3.2"} <= {*names}
    assert all(len(command_line(name).flags) > 90 for name in names)
    with pytest.raises(KeyError):
        command_line("sglang-0.0.1")


def test_engine_and_router_versions_are_distinct() -> None:
    assert packaged_versions().versions_of("sglang") == ("0.4.9.post2", "0.5.6.post1", "0.5.23")
    assert packaged_versions().versions_of("sglang-router") == ("0.3.2",)
    assert (
        packaged_versions().nearest_version("sglang", "") == packaged_versions().nearest_version("sglang", "0.6") == "0.5.23"
    )
    assert packaged_versions().nearest_version("sglang", "0.4.8.post1") == "0.4.9.post2"
    assert packaged_versions().nearest_version("llama.cpp", "1") == ""


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("--tp-size", "--tp-size"),
        ("--tensor-parallel-size", "--tp-size"),
        ("--tp", "--tp-size"),
        ("--no-enable-tf32-matmul", "--enable-tf32-matmul"),
        ("--dp", "--dp-size"),
        ("--cuda-graph-bs", None),  # two flags begin with it
        ("--enable-deepep-moe", None),
        ("-tp", None),
    ],
)
def test_word_is_resolved_to_flag_or_unique_prefix(newest: CommandLine, word: str, name: str | None) -> None:
    found = newest.find_flag(word)
    assert (found.name if found else None) == name


def test_some_programs_accept_no_abbreviated_flags() -> None:
    line = command_line("tensorrt-llm-1.2.1")
    assert line.find_flag("--tp_size") and not line.find_flag("--tp_siz")


@pytest.mark.parametrize(
    ("flag", "words", "said"),
    [
        ("--enable-metrics", [], ""),
        ("--enable-metrics", ["1"], "takes no value, but is followed by 1"),
        ("--tp-size", [], "needs a value"),
        ("--tp-size", ["8"], ""),
        ("--tp-size", ["8", "9"], "takes a single value, but is followed by 8 9"),
        ("--tp-size", ["eight"], "takes a whole number, not eight"),
        ("--tp-size", ["8.0"], "takes a whole number, not 8.0"),
        ("--mem-fraction-static", ["0.85"], ""),
        ("--mem-fraction-static", [".85"], ""),
        ("--mem-fraction-static", ["85%"], "takes a number, not 85%"),
        ("--context-length", ["128k"], ""),
        ("--context-length", ["128K"], "takes a whole number such as 8192, 8k or 8Ki, not 128K"),
        ("--mm-process-config", ["{}"], ""),
        ("--mm-process-config", ["none"], "takes JSON, not none"),
        ("--nnodes", ["$(LWS_GROUP_SIZE)"], ""),
        ("--deepep-mode", ["fast"], "takes auto, low_latency, normal, not fast"),
        ("--lora-paths", [], ""),
        ("--cuda-graph-bs-decode", ["1", "2"], ""),
    ],
)
def test_arguments_after_a_flag_are_checked(newest: CommandLine, flag: str, words: list[str], said: str) -> None:
    found = newest.find_flag(flag)
    assert found is not None
    assert usage_error(found, words) == said


def test_flag_data_contain_deprecation_help_and_variables(newest: CommandLine) -> None:
    assert newest.flags["--enable-dp-attention"].deprecated == "--attn-dp-size <dp-size>"
    assert newest.flags["--disable-fast-image-processor"].deprecated == "--image-processor-backend=pil"
    assert newest.flags["--page-size"].help
    assert newest.flags["--max-prefill-tokens"].default == 16384
    assert newest.variables["SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"] == 128
    assert "SGLANG_HOST_IP" in newest.variables, "the flag is read without being declared"


def test_versions_with_a_removed_flag_are_found() -> None:
    assert packaged_versions().versions_with_flag("sglang", "--enable-deepep-moe") == ("0.4.9.post2",)
    assert packaged_versions().versions_with_flag("sglang", "--moe-a2a-backend") == ("0.5.6.post1", "0.5.23")
    assert (
        packaged_versions().versions_with_flag("sglang", "--nonsense")
        == packaged_versions().versions_with_flag("llama.cpp", "--port")
        == ()
    )


def test_replacement_of_a_flag_is_an_existing_flag(newest: CommandLine) -> None:
    hints = replacements("sglang")
    assert hints["--enable-deepep-moe"] == "--moe-a2a-backend deepep"
    for old, new in hints.items():
        assert (known := newest.find_flag(old)) is None or known.deprecated, old
        assert newest.find_flag(new.split()[0]) is not None, new
        assert packaged_versions().versions_with_flag("sglang", old), old
    assert replacements("llama.cpp") == {}


@pytest.mark.parametrize(("engine", "other"), [("sglang", "vllm"), ("vllm", "sglang")])
def test_a_flag_of_another_engine_is_translated_to_a_flag(engine: str, other: str) -> None:
    lines = {
        name: packaged_versions().get(f"{name}-{packaged_versions().versions_of(name)[-1]}") for name in (engine, other)
    }
    here, there = lines[engine], lines[other]
    assert here is not None and there is not None and len(translations(engine)) > 10
    for flag, same in translations(engine).items():
        assert there.find_flag(flag) is not None and here.find_flag(flag) is None, flag
        assert not same.startswith("--") or here.find_flag(same.split()[0]) is not None, same
    assert translations("llama.cpp") == {}


def test_flag_files_in_a_user_folder_are_read(tmp_path: Path) -> None:
    (tmp_path / "sglang-0.9.json").write_text(json.dumps({"flags": {"--x": {"takes": "value", "aliases": ["--y"]}}}))
    (tmp_path / "sglang-0.5.23.yaml").write_text("flags: {--z: [a, b]}\n")
    own = Versions(tmp_path)
    assert own.versions_of("sglang") == ("0.4.9.post2", "0.5.6.post1", "0.5.23", "0.9")
    assert (line := own.get("sglang-0.9")) and line.find_flag("--y") == Flag("--x", "value", aliases=("--y",))
    assert (line := own.get("sglang-0.5.23")) and line.flags == {"--z": Flag("--z", "value", choices=("a", "b"))}
    assert own.get("sglang-7") is None


@pytest.mark.parametrize("text", ["[", "flags: 1", "{}", "flags: {--x: {nonsense: 1}}", "flags: {--x: 1}", "- 1"])
def test_invalid_flag_file_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "sglang-0.9.yaml").write_text(text)
    with pytest.raises(DataError, match=r"^sglang-0\.9: "):
        Versions(tmp_path).get("sglang-0.9")
