"""Tests of the step that runs the preflight check on a real GPU. The tests need no GPU: they check which process the step
starts, and how the step evaluates results.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ome_operator import keys
from tests.gpu import preflight_host, preflight_step, rendered
from tests.gpu.preflight_host import Machine
from tests.gpu.preflight_pod import PLACE, VARIABLES, WORDS, Case, variables
from tests.gpu.preflight_step import Step
from tests.gpu.test_one_gpu import HERE, ROOT, render
from tests.support.preflights import fake_torch

VERSION = """\
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (dvs-builder@host)
GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)
"""


def objects(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Step]:
    """Yield the step on a machine on which nvidia-smi lists one GPU."""
    program = tmp_path / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VERSION", raising=False)
    made = Step(tmp_path / "step", 60, (0, 0))
    made.machine = replace(made.machine, gpus=1)
    yield made


def own(name: str, step: Step, **fields: Any) -> Case:
    """Return a case with its own address and ports, because tests run at the same time."""
    config = {"bind": "127.87.3.1", "port": preflight_host.two_ports(), **fields.pop("config", {})}
    return Case(name, fields.pop("model", step.model), config=config, **fields)


def with_torch(step: Step, folder: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setenv("PYTHONPATH", fake_torch(folder, how)["PYTHONPATH"])
    step.machine = replace(step.machine, torch=True)


def test_step_runs_the_check_with_arguments_and_variables_of_its_container(tmp_path: Path) -> None:
    """The step runs the check with what its container gets: arguments, variables and configuration are those of the init
    container that is rendered for service `plain`.
    """
    file, name = tmp_path / "one.yaml", "metadata: {name: plain, namespace: one-gpu}"
    text = (HERE / "one-gpu.yaml").read_text()
    assert text.count(name) == 1
    file.write_text(text.replace(name, f"{name[:-1]}, annotations: {{{keys.PREFLIGHT}: Require}}}}"))
    pods = {rendered.part(one): one for one in rendered.read(render(tmp_path / "one.json", "-f", str(file)))}
    (box,) = pods["plain-engine"]["spec"]["template"]["spec"]["initContainers"]
    assert box["command"][:2] == ["/bin/sh", "-c"] and box["command"][3] == "preflight"
    assert (*box["command"][4:], *box["args"]) == WORDS

    values = {each["name"]: each["value"] for each in box["env"] if "value" in each}
    own = variables(Case("any", Path(values["MODEL_PATH"])), tmp_path / "message")
    place = json.loads(values.pop("OME_PREFLIGHT"))
    assert place.pop("leader").startswith("plain-engine-") and place == PLACE
    assert "$(" in values.pop("LWS_LEADER_ADDRESS") and not any("LWS_LEADER_ADDRESS" in word for word in WORDS)
    assert set(VARIABLES) < set(values) and {name: own[name] for name in values} == values
    assert json.loads(own["OME_PREFLIGHT"]) == {**PLACE, "rank": "0", "message": str(tmp_path / "message")}


@pytest.mark.skipif(bool(Machine.read().gpus), reason="needs a machine without a GPU")
def test_all_preflight_cases_run_without_gpu_and_torch(tmp_path: Path) -> None:
    """Without a GPU and without torch, the step runs all cases as a program. It prints one JSON object for each case on
    stdout, and nothing else.
    """
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    command = [sys.executable, "-m", "tests.gpu.preflight_step"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=90)
    found = {one["case"]: one for one in objects(ended.stdout)}
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    assert {one["step"] for one in found.values()} == {"preflight"} and "machine" in found and "summary" in found
    skipped = {name for name, one in found.items() if one["ok"] is None}
    assert skipped == {"driver-older", "collective-one-rank", "ranks-2", "stages"} == set(found["summary"]["skipped"])
    assert all(found[name]["skipped"] for name in skipped)
    checks = {name: {each["check"] for each in one.get("findings", ())} for name, one in found.items()}
    assert all("gpus" in checks[name] for name in ("clean-first", "without-torch", "gpus-require", "gpus-warn"))
    assert "weights" in checks["weights-short"] and "weights" in checks["weights-lacking"] and "paths" in checks["path"]
    assert "devices" in checks["device"] and (found["gpus-require"]["exit"], found["gpus-warn"]["exit"]) == (1, 0)


def test_step_imports_only_the_check_from_the_project() -> None:
    """The step imports no module of the project except the check, because the machine with the GPU does not
    have pydantic.
    """
    script = "import sys, tests.gpu.preflight_step\nprint(*sorted(n for n in sys.modules if 'ome_' in n or n == 'pydantic'))"
    imported = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "ome_operator.preflight.code" in imported and "pydantic" not in imported
    assert {name for name in imported.split() if not name.startswith("ome_operator.preflight")} == {"ome_operator"}


def test_preflight_of_healthy_pod_reports_collective_times(
    step: Step, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_torch(step, tmp_path, monkeypatch, "print('NCCL version 2.28.9+cuda13.0')")
    found = step.check(own("clean", step))
    assert found["ok"] and {each["check"] for each in found["findings"]} <= {"nofile", "shm"}, found
    assert (found["backend"], found["collective"]["rates"]) == ("nccl", {})
    assert 0 < found["torch_load_s"] <= found["seconds"] and found["collective"]["after_load_s"] >= 0
    hidden = step.check(own("hidden", step, torch=False))
    assert hidden["ok"] and hidden["collective"] is None


def test_unexpected_or_missing_findings_are_not_ok(step: Step, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result is not ok if findings are missing, if there are unexpected findings, or if a collective fails or does not
    run.
    """
    machine = step.machine
    step.machine = replace(machine, gpus=2)
    assert "no finding of gpus" in step.check(own("missing", step))["why"]
    step.machine = replace(machine, torch=True)
    silent = own("silent", step, model=tmp_path / "nowhere", torch=True)
    found = step.check(silent)
    assert not found["ok"] and {"findings of paths", "the collective did not run"} <= set(found["why"])
    with_torch(step, tmp_path, monkeypatch, "raise RuntimeError('CUDA error: out of memory')")
    found = step.check(own("fails", step))
    assert not found["ok"] and {"findings of collective", "the collective failed"} <= set(found["why"])
    assert "CUDA error" in found["tail"]


def test_a_case_ends_in_time(step: Step, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_torch(step, tmp_path, monkeypatch, "time.sleep(3600)")
    monkeypatch.setattr(preflight_step, "LIMIT", 2.0)
    found = step.check(own("hangs", step))
    assert not found["ok"] and found["why"][0] == "it was killed after 2 s" and found["seconds"] < 10
    step.ends = 0.0
    step.attempt("late", lambda: {"ok": True})
    assert step.results[-1] == {"step": "preflight", "case": "late", "skipped": "no time is left", "ok": None}


@pytest.mark.parametrize(("gpus", "ok"), [(1, True), (2, False)])
def test_ranks_refused_by_nccl_are_accepted_only_on_a_shared_gpu(
    step: Step, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: int, ok: bool
) -> None:
    """A result in which NCCL refuses ranks is only accepted if the ranks share a GPU."""
    with_torch(step, tmp_path, monkeypatch, "raise RuntimeError('Duplicate GPU detected')")
    step.machine = replace(step.machine, gpus=gpus)
    found = step.ranks(2)
    assert found["allowed"] == (["collective"] if ok else []) and found["ok"] is ok, found
    assert ["Duplicate GPU" in each["said"] for each in found["findings"] if each["check"] == "collective"] == [True, True]


def test_older_driver_version_file_gives_a_driver_finding(step: Step) -> None:
    root = step.folder / "root"
    preflight_host.older_driver(root, VERSION, 580, 579)
    assert "  579.159.04  " in (root / "proc/driver/nvidia/version").read_text()
    step.machine = replace(step.machine, gpus=len(preflight_host.numbered_gpus()))
    case = own("driver", step, env={"CUDA_VERSION": "13.0.0"}, config={"root": str(root)}, driver=579)
    found = step.check(case)
    assert found["ok"] and "driver" in found["expected"], found
