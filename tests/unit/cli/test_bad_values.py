"""Each option of each command answers a bad value with one sentence, and without a traceback.

A new option needs no entry here if its parser refuses NONSENSE. If the command checks the value itself, add a bad value to
BAD_VALUES. If every text is valid, or only a cluster can tell, add the option to ANY_TEXT.
"""

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from ome_local.binaries import ensure
from ome_operator.cli import registry
from ome_operator.cli.app import app
from ome_operator.errors import UserError
from tests.support.parts import ROOT
from tests.unit.cli.test_help import commands

NONSENSE = "no such value"
ABSENT = "/no/such/folder/file"
SAMPLE = str(ROOT / "config/samples/isvc/Qwen/qwen3-235b.yaml")


class BadValue(NamedTuple):
    """A value that a command refuses after its parser has accepted it."""

    value: str = NONSENSE
    beside: tuple[str, ...] = ()
    """Other words that the command needs to check the value."""


_IN_FILE = ("--filename", SAMPLE)
_NONSENSE = BadValue()

BAD_VALUES: dict[str, BadValue] = {
    "--agent-root": BadValue("relative/path"),
    "--bake": _NONSENSE,
    "--catalog": BadValue(ABSENT, _IN_FILE),
    "--config": BadValue(ABSENT),
    "--endpoint": _NONSENSE,
    "--expose": _NONSENSE,
    "--expose-other-domain": _NONSENSE,
    "--gateway": BadValue(NONSENSE, ("--expose=HTTPRoute",)),
    "--kubeconfig": BadValue(ABSENT),
    "--log-format": _NONSENSE,
    "--log-level": _NONSENSE,
    "--operator-class": _NONSENSE,
    "--preflight": _NONSENSE,
    "--refused-address": _NONSENSE,
    "--root": _NONSENSE,
    "--secret": _NONSENSE,
    "--server": _NONSENSE,
    "--serviceaccount": _NONSENSE,
    "--since": _NONSENSE,
    "--simulate": _NONSENSE,
    "--watch-namespace": _NONSENSE,
    "--waves": _NONSENSE,
    "--well-known-models": BadValue(ABSENT),
    "--with": _NONSENSE,
    "agent --peer-token": BadValue(ABSENT, ("--peers=agents",)),
    "benchmark prepare --plan": _NONSENSE,
    "benchmark report --plan": _NONSENSE,
    "demo --name": _NONSENSE,
    "explain runtime --filename": BadValue(ABSENT),
    "explain runtime --files": BadValue(ABSENT),
    "generate --from": BadValue(ABSENT),
    "generate --output": BadValue("json"),
    "generate --reasoning-parser": BadValue(NONSENSE, ("--hardware=h200", "--model=Kimi-K2-Thinking")),
    "kubeconfig --duration": _NONSENSE,
    "kubeconfig --output": BadValue(ABSENT),
    "lint --accelerator": BadValue(NONSENSE, _IN_FILE),
    "lint --engine-data": BadValue(ABSENT, _IN_FILE),
    "lint --filename": BadValue(ABSENT),
    "local up --accelerator": _NONSENSE,
    "local up --kubernetes": _NONSENSE,
    "plan compare --model": _NONSENSE,
    "plan compare --precision": _NONSENSE,
    "plan layouts --calibration": BadValue(ABSENT),
    "plan layouts --decode": _NONSENSE,
    "plan layouts --engine": _NONSENSE,
    "plan layouts --hardware": _NONSENSE,
    "plan layouts --model": _NONSENSE,
    "plan layouts --plot": BadValue("plot.png"),
    "plan layouts --precision": _NONSENSE,
    "plan layouts --prefill": BadValue(NONSENSE, ("--decode=1xTP8",)),
    "plan layouts --tpot": _NONSENSE,
    "plan layouts --ttft": _NONSENSE,
    "plan layouts --workload": _NONSENSE,
    "render --filename": BadValue(ABSENT),
    "scale --plot": BadValue(ABSENT, ("--simulate=constant", "--oracle")),
}
"""A bad value of each option that the command checks itself, by the flag, or by the command and the flag."""
_NAMES = ("down", "helm", "kubeconfig", "kubectl", "load", "logs", "model", "status", "up")
BAD_VALUES |= {f"local {command} --name": _NONSENSE for command in _NAMES}

ANY_TEXT = {
    "--account": "the files are read again before each request",
    "--address": "a name that cannot be resolved is reported when the port is opened",
    "--benchmark-image": "the kubelet reports an image that does not exist",
    "--container": "only the pods tell",
    "--context": "only the kubeconfig tells",
    "--endpoint-host": "compared with the hosts of models",
    "--engine-version": "versions that are newer than this program are planned like the newest known version",
    "--expose-annotation": "compared with the annotations of services",
    "--expose-domain": "the API server checks the hosts",
    "--file": "written after the service was read",
    "--identity": "a name that the operator only shows",
    "--identity-host": "compared with the hosts of models",
    "--identity-namespace": "compared with the namespaces of models",
    "--ingress-class": "only the cluster tells",
    "--key": "a secret",
    "--namespace": "only the cluster tells",
    "--namespace-of-lease": "only the cluster tells",
    "--node": "only the cluster tells",
    "--observe-namespace": "compared with the namespaces of services",
    "--own-address": "compared with the addresses of agents",
    "--peers": "resolved before each download",
    "--pin-from": "compared with the namespaces of services",
    "--private-host": "compared with the hosts of models",
    "--pull-secret": "only the cluster tells",
    "--router": "the arguments of the user's router, from which it is derived, may name variables of a shell",
    "--router-metrics": "as --router",
    "--secrets": "the files are read for each model",
    "--selector": "the API server checks the selector",
    "--service": "only the recording tells",
    "--sidecar-image": "the kubelet reports an image that does not exist",
    "--to": "only the revisions of the service tell",
    "--tools-image": "the kubelet reports an image that does not exist",
    "--why": "shown to people",
    "--worker-key": "a secret",
    "benchmark prepare --work": "the pod's volume",
    "benchmark report --message": "the pod's file",
    "benchmark report --work": "the pod's volume",
    "diff --filename": "read after the namespace of the kubeconfig's context",
    "fit --filename": "read after the namespace of the kubeconfig's context",
    "freeze --operator-class": "only the cluster tells",
    "generate --model-path": "a path in the image of the engine",
    "logs --role": "only the roles of the service tell",
    "plan compare --calibration": "a file that does not exist is created",
    "plan compare --decode": "checked against the results of the job",
    "plan compare --engine": "checked against the results of the job",
    "plan compare --hardware": "checked against the results of the job",
    "plan compare --prefill": "checked against the results of the job",
    "preflight --filename": "read after the namespace of the kubeconfig's context",
    "thaw --operator-class": "only the cluster tells",
}
"""The reason why the command cannot know that a value is bad before it does something, by the flag, or by the command and
the flag."""

REQUIRED = {
    "--decode": "1xTP8",
    "--filename": SAMPLE,
    "--hardware": "h200",
    "--model": "Kimi-K2-Instruct",
    "--namespace": "team",
    "--node": "h200-00",
    "--plan": "{}",
    "--role": "engine:regular:30000:1:stem",
    "--root": "/tmp",
    "--router": "http://127.0.0.1:1",
    "--selector": "a=b",
    "--serviceaccount": "ome/ome-operator",
    "--workload": "2000/100",
}
"""A valid value of each option that a command requires."""
ARGUMENTS = {"JOB": "job", "NODE|SERVICE": "node"}
"""A value of a required argument by its placeholder in the help; every other argument gets the name ABSENT."""
ALSO_NEEDED = {
    "freeze": ("--all",),
    "generate": ("--hardware=h200", "--model=Kimi-K2-Instruct"),
    "preflight": ("kimi-k2",),
    "scale": ("kimi-k2",),
    "thaw": ("--all",),
}
"""Words that a command needs although its parser does not require them."""


class Case(NamedTuple):
    """An option of a command."""

    words: tuple[str, ...]
    command: Any
    option: Any

    @property
    def flag(self) -> str:
        """Return the long form of the option."""
        return next(str(name) for name in self.option.opts if name.startswith("--"))

    @property
    def key(self) -> str:
        """Return the command and the flag, such as `lint --output`."""
        return " ".join((*self.words, self.flag))


def cases() -> Iterator[Case]:
    """Yield every option that has a value."""
    for words, command in commands():
        for option in () if hasattr(command, "list_commands") else command.params:
            if option.param_type_name == "option" and not getattr(option, "is_flag", False):
                yield Case(words, command, option)


CASES = {case.key: case for case in cases()}


def entry(table: dict[str, Any], case: Case) -> Any:
    """Return the entry of an option in one of the tables above; None if there is none."""
    return table.get(case.key) or table.get(case.flag)


@pytest.fixture(autouse=True)
def harmless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Fail the test if a command gets as far as its work: no cluster can be reached, and no process started."""

    def refuse(*given: Any, **options: Any) -> Any:
        pytest.fail(f"the command began its work: {given}")

    monkeypatch.chdir(tmp_path)
    for name, value in (("KUBECONFIG", "no-kubeconfig"), ("OME_LOCAL_HOME", "home"), ("OME_BENCHMARK", "")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(registry, "run", refuse)
    monkeypatch.setattr(ensure, "ensure", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


def message_of(case: Case, value: str, beside: tuple[str, ...] = ()) -> str:
    """Run the command of an option with a value. Return the message of its error, which must name the option or the
    value, in a single line without a traceback.
    """
    needed = [word for word in ALSO_NEEDED.get(case.words[0], ()) if not word.startswith(case.flag) and not beside]
    words = [*case.words, *needed, *beside, f"{case.flag}={value}"]
    for each in case.command.params:
        long = each.opts[0]
        if each.required and each is not case.option and not any(word.startswith(long) for word in beside):
            words.append(ARGUMENTS.get(each.metavar or "", ABSENT) if long[:1] != "-" else f"{long}={REQUIRED[long]}")
    done = CliRunner().invoke(app, words)
    error = done.exception
    assert isinstance(error, SystemExit | UserError), f"{words}: {error!r} instead of a message"
    assert isinstance(error, UserError) or done.exit_code == 2, f"{words}: exit code {done.exit_code}"
    message = str(error) if isinstance(error, UserError) else done.stderr.partition("Error: ")[2].strip()
    assert message and "\n" not in message, f"{words}: {message!r}"
    assert case.flag in message or value in message, f"{words}: {message!r}"
    return message


@pytest.mark.parametrize("key", CASES)
def test_bad_value_of_an_option_is_answered_with_one_sentence(key: str) -> None:
    case = CASES[key]
    if entry(ANY_TEXT, case) is None:
        bad = entry(BAD_VALUES, case) or BadValue()
        message_of(case, bad.value, bad.beside)


def bounds(option: Any) -> list[float]:
    """Return numbers just outside the bounds of an option, as far as the option has bounds."""
    kind = getattr(option, "type", option)
    low, high = getattr(kind, "min", None), getattr(kind, "max", None)
    return [*([low - 1] if low is not None else []), *([high + 1] if high is not None else [])]


@pytest.mark.parametrize("key", [key for key, case in CASES.items() if bounds(case.option)])
def test_number_out_of_bounds_is_refused(key: str) -> None:
    for number in bounds(CASES[key].option):
        message_of(CASES[key], f"{number:g}")


def test_tables_name_only_options_that_exist() -> None:
    known = {*CASES, *(case.flag for case in CASES.values())}
    assert [key for key in (*BAD_VALUES, *ANY_TEXT) if key not in known] == []


@pytest.mark.parametrize("command", ["operator", "registry", "agent"])
def test_invalid_choice_names_the_flag_and_the_values_with_exit_code_2(command: str) -> None:
    assert message_of(CASES[f"{command} --log-level"], "nope") == "--log-level=nope: write DEBUG, INFO, WARNING or ERROR."
