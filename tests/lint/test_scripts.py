"""Tests of scripts as users write them: no error is reported for what a shell corrects, or for a value that only a shell can
compute.
"""

import copy
from typing import Any

import pytest
import yaml

from ome_operator.lint.finding import Severity
from tests.support.linting import found, looked_at
from tests.support.overlays import BASES

Body = dict[str, Any]
START = "python3 -m sglang.launch_server --model-path $MODEL_PATH --host 0.0.0.0 --port 30000 --tp-size 16"
RANKS = "--nnodes $LWS_GROUP_SIZE --node-rank $LWS_WORKER_INDEX --dist-init-addr $LWS_LEADER_ADDRESS:5757"
SCRIPTS = {
    "default": f"{START} {RANKS.replace('$LWS_WORKER_INDEX', '${LWS_WORKER_INDEX:-0}')}",
    "suffix": f"{START} {RANKS.replace('$LWS_WORKER_INDEX', '${POD_NAME##*-}')}",
    "hash in a word": f"{START} --api-key a#b {RANKS}",
    "comment": f"# --tp-size 3\n{START} {RANKS} # --tp-size 3",
    "computed": f"RANK=$(( LWS_WORKER_INDEX + 0 ))\n{START} {RANKS.replace('$LWS_WORKER_INDEX', '$RANK')}",
    "branches": f"if [ $LWS_WORKER_INDEX = 0 ]\nthen {START} --node-rank 0\nelse {START} --node-rank 1\nfi",
    "case": f"case $LWS_WORKER_INDEX in\n0) {START} --nnodes 2 --node-rank 0;;\n*) {START};;\nesac",
    "two": f"{START} {RANKS} &\npython3 -m sglang.launch_server --port 40000 --tp-size 1 &\nwait",
    "more": f"{START} $EXTRA_ARGS",
    "all": f'{START} "$@"',
    "array": f"args=(--nnodes $LWS_GROUP_SIZE)\n{START} \"${{args[@]}}\"",
    "function": f"run() {{\n {START} \"$@\"\n}}\nrun {RANKS}",
    "exec": f"set -e\nexport NCCL_DEBUG=INFO\nexec {START} {RANKS} 2>&1 | tee /tmp/log",
    "loop": f"while true; do {START} {RANKS}; sleep 1; done",
    "document": f"cat >/tmp/c <<EOF\n--tp-size 3 $X\nEOF\n{START} {RANKS}",
    "lines": f"cd /sgl &&\n{START} \\\n  {RANKS}",
    "quotes": f"{START} {RANKS} --json-model-override-args '{{\"a\": \"b#c $X\"}}'",
}  # fmt: skip


def with_script(script: str) -> list[Body]:
    """Return the objects of `minimal-two-nodes.yaml`, in which a shell runs this script instead of the original command."""
    bodies: list[Body] = list(yaml.safe_load_all((BASES / "minimal-two-nodes.yaml").read_text()))
    bodies[0]["spec"]["engineConfig"]["runner"] |= {"command": ["bash", "-c"], "args": [script]}
    return bodies


def errors(bodies: list[Body]) -> list[str]:
    return [f"{each.rule.id}: {each.hit.says}" for each in found(bodies) if each.rule.severity == Severity.ERROR]


@pytest.mark.parametrize("name", SCRIPTS)
def test_possibly_correct_script_is_no_error(name: str) -> None:
    assert errors(with_script(SCRIPTS[name])) == []


def test_arguments_in_a_script_are_checked_if_certain() -> None:
    (subject,) = looked_at(with_script(SCRIPTS["exec"]))
    start = subject.roles[0].launch
    assert start is not None and start.shell and start.whole_number("--tp-size") == 16
    assert "flag-unknown: sglang 0.5.23 has no flag --no-such-flag" in errors(
        with_script(f"{SCRIPTS['exec']}; {START} --no-such-flag")
    )
    assert any("flag-value" in each for each in errors(with_script(f"if a; then {START} --tp-size two; fi")))


def flags_of(args: list[str]) -> list[int]:
    return [at for at, word in enumerate(args) if word.startswith("--") and "=" in word]


@pytest.mark.parametrize("base", sorted(path.name for path in BASES.iterdir()))
def test_value_computed_by_the_shell_causes_no_error(base: str) -> None:
    """In a launch script, a value that only a shell can compute, `$(compute)`, causes no error of a rule. Each argument of
    each engine in turn gets this value.
    """
    bodies: list[Body] = list(yaml.safe_load_all((BASES / base).read_text()))
    before = set(errors(bodies))
    said: dict[str, list[str]] = {}
    for number, body in enumerate(bodies):
        for part in ("engineConfig", "decoderConfig"):
            runner = ((body.get("spec") or {}).get(part) or {}).get("runner") or {}
            args = runner.get("args") or []
            if "sglang.launch_server" not in " ".join(runner.get("command") or []):
                continue
            for at in flags_of(args):
                made = copy.deepcopy(bodies)
                words = [*args[:at], f"{args[at].partition('=')[0]}=$(compute)", *args[at + 1 :]]
                script = " ".join([*runner["command"], *(f"'{word}'" if "{" in word else word for word in words)])
                made[number]["spec"][part]["runner"] |= {"command": ["bash", "-c"], "args": [script]}
                if new := [each for each in errors(made) if each not in before]:
                    said[f"{part} {args[at]}"] = new
    assert said == {}
