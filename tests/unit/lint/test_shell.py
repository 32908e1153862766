"""Tests that shell scripts are read as a shell interprets them. The parts that cannot be read are marked as unknown."""

import os
import subprocess
from pathlib import Path

import pytest

from ome_operator.lint.shell import Command, commands, has_unknown_value, names_in, unclosed_quote

KNOWN = {"X": "3", "TWO": "--a 1", "EMPTY": "", "POD_NAME": "x-0-w-2"}
SAME = (
    "p a b", "p 'a b' \"c d\"", "p a#b # comment", "# only\np a", "p \\\n  a \\\n  b", "p $X ${X} \"$X\"", "p $TWO",
    'p "$TWO"',
    "p ${X:-0} ${X-0} ${EMPTY-1}", "p '$X' \\$X", "p a; p b && p c", "exec_=1 p a", "p a >/dev/null 2>&1", "p a 2>err",
    "p <<EOF a\nnot a word $X\nEOF\np b", "V=4\np $V", "export V=4 W=5; p $V$W", "p a|cat",
    "while true; do p a; break; done",
    "p --x=a#b '#c' \"#d\"", "(p a)", "{ p a; }", "p 'it''s'", 'p "a \\"b\\" \\$X"', "p a &\nwait", "p 1 2>&1",
    "f() { :; }; p a", "p a  &>/dev/null", "p --json '{\"a\": [1, 2]}'",
)  # fmt: skip
UNKNOWN = (
    "p ${POD_NAME##*-}", "p $(hostname)", "p `hostname`", "p $((X + 1))", "p $UNSET", "p ${UNSET:-0}", "p ${EMPTY:-0}",
    "V=$(date)\np $V", "for V in 1 2; do p $V; done", "read V; p $V", "if a; then V=1; fi; p $V", 'p "$@"',
)  # fmt: skip
UNSURE = (
    "if [ $X = 0 ]; then p a; else p b; fi", "case $X in 0) p a;; esac", "true || p a", "f() { p a; }", "f() {\n p a\n}\nf",
    "if a; then if b; then c; fi; p a; fi", "for i in 0 1; do p a & done", "for i in 0 1; do p a; done",
    "while b; do p a & done", "function f { p a; }", "function f() {\n p a\n}\nf", "if a; then bash -c 'p a'; fi",
)  # fmt: skip


def of_p(script: str) -> list[Command]:
    return [found for found in commands(script, KNOWN) if found.words[0] == "p"]


@pytest.mark.parametrize("script", SAME)
def test_parsed_words_equal_those_of_bash(script: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = f'p() {{ printf "%s\\n" p "$@" >>{log}; echo -- >>{log}; }}\n' + script
    subprocess.run(["bash", "-c", program], env={**KNOWN, "PATH": os.environ["PATH"]}, cwd=tmp_path, check=False, timeout=20)
    there = [tuple(part.splitlines()) for part in log.read_text().split("--\n") if part]
    assert there and [found.words for found in of_p(script)] == there
    assert all(found.is_certain and not found.loose for found in of_p(script))


@pytest.mark.parametrize("script", UNKNOWN)
def test_values_computed_by_the_shell_stay_unknown(script: str) -> None:
    found = of_p(script)
    assert found and all("$" in each.words[-1] or "`" in each.words[-1] for each in found)
    assert all(each.loose for each in found)


@pytest.mark.parametrize("script", UNSURE)
def test_conditional_command_is_marked_as_uncertain(script: str) -> None:
    found = of_p(script)
    assert found and not any(each.is_certain for each in found)


@pytest.mark.parametrize("script", ["p --config <(echo 'a: b') x", "p a>(cat) x", "p $(cat <(echo b)) x"])
def test_process_substitution_is_an_unknown_word(script: str) -> None:
    (found,) = of_p(script)
    assert (
        len(found.words) == len(script.split(" --config")) + 2
        and has_unknown_value(found.words[-2])
        and found.words[-1] == "x"
    )


@pytest.mark.parametrize(
    "script",
    ["bash -c 'p $X'", "exec bash -lc 'p $X' --", '/bin/sh -e -c "p $X"', "bash -c \"bash -c 'p 3'\"", "sh -ec 'p ${X}'"],
)
def test_nested_script_is_parsed(script: str) -> None:
    assert [found.words for found in of_p(script)] == [("p", "3")]


def test_nested_script_sees_only_environment_variables() -> None:
    assert [found.words for found in of_p("X=4; V=5; bash -c 'p $X $V'")] == [("p", "$X", "$V")]


def test_unclosed_quotes_are_detected() -> None:
    assert unclosed_quote("p 'a") == "'" and unclosed_quote('p "a') == '"'
    assert not any(map(unclosed_quote, SAME))


def test_variable_names_in_expansions_are_found() -> None:
    assert names_in("a.$(POD_NAME).b:$X-${Y:-0}") == {"POD_NAME", "X", "Y"} and names_in("POD_NAME") == frozenset()


def test_redirections_and_comments_are_not_words() -> None:
    (found,) = of_p("p a 2>&1 >log b # c")
    assert found.words == ("p", "a", "b")


def test_no_script_raises_an_exception() -> None:
    for script in ("'", '"', "`", "$(", "${", "<<", "\\", "((", "fi", "}", "a=(", "p <<E\n", "\0", "$", "p $'x'"):
        commands(script, KNOWN)
    assert commands("p " * 100_000, KNOWN) == []
