"""Tests of `ome plan compare`: a BenchmarkJob next to its prediction, and its rows in the user's own calibration file."""

import csv
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from ome_operator.cli import connect
from ome_operator.cli.app import app
from ome_operator.errors import UserError
from ome_operator.kube.errors import Forbidden, NotFound
from ome_operator.sizing.benchmark_rows import rows, table
from tests.support.fake_api import FakeApi
from tests.unit.sizing.test_calibration import GOOD
from tests.unit.sizing.test_calibration import file as rows_file
from tests.unit.sizing.test_command import K2, refused, run

JOB = """
kind: BenchmarkJob
metadata: {name: nightly}
spec: {serviceMetadata: {engine: SGLang, version: 0.5.23, gpuType: H200, gpuCount: 128}}
status:
  state: Completed
  report:
    scenario: D(2000,100)
    results:
    - {scenario: "D(2000,100)", concurrency: 480, requests: 4800, ttft: "900", tpot: "40.5", tokensPerSecond: "9600"}
    - {scenario: "U(100,300)/(50,150)", concurrency: 16, requests: 160, ttft: "200", tpot: "20"}
    - {scenario: "P(1000,1000)/100", concurrency: 16, requests: 160, ttft: "200", tpot: "20", tokensPerSecond: many}
    - {scenario: dataset, concurrency: 16, requests: 160, ttft: "200", tpot: "20"}
"""
LAYOUT = ("--model", "Kimi-K2-Instruct", "--prefill", "1xDEP32", "--decode", "1xDEP96")


def test_benchmark_is_compared_with_its_prediction(tmp_path: Path) -> None:
    job, own = tmp_path / "job.yaml", tmp_path / "own.csv"
    job.write_text(JOB)
    said = run("compare", job, *LAYOUT).stdout.splitlines()
    assert (
        said[1].startswith("nightly_D(2000x100)_c480") and said[1].split()[4] == "40.50" and said[1].split()[-1] == "100.00"
    )
    assert len(said) == 5 and said[-1].startswith("--calibration FILE adds these runs")
    assert run("compare", job, *LAYOUT, "--calibration", own).exit_code == 0
    assert run("validate", own).stdout.startswith("3 rows: 3 answered, 0 refused.")
    assert run(*K2, "--nodes", "16", "--workload", "2000/100", "--calibration", own).exit_code == 0


def test_rows_of_other_jobs_are_kept_and_used(tmp_path: Path) -> None:
    """The rows of other jobs stay in the file and improve the prediction: a second job is predicted with the rows of the
    first. Adding the same job again changes nothing.
    """
    job, own = tmp_path / "job.yaml", tmp_path / "own.csv"
    first = run("compare", write(job, JOB), *LAYOUT, "--calibration", own).stdout
    once = own.read_text()
    assert run("compare", job, *LAYOUT, "--calibration", own).stdout == first and own.read_text() == once
    second = run("compare", write(job, JOB.replace("nightly", "weekly")), *LAYOUT, "--calibration", own).stdout
    with own.open(newline="") as found:
        ids = [row["id"] for row in csv.DictReader(found)]
    assert [name.partition("_")[0] for name in ids] == ["nightly"] * 3 + ["weekly"] * 3
    assert [line.split()[1:] for line in second.splitlines()[1:4]] != [line.split()[1:] for line in first.splitlines()[1:4]]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_cache_hit_rate_is_recorded_and_validated(tmp_path: Path) -> None:
    job, own = write(tmp_path / "job.yaml", JOB), tmp_path / "own.csv"
    plain = run("compare", job, *LAYOUT).stdout.splitlines()[1].split()
    cached = run("compare", job, *LAYOUT, "--prefix-hit", "0.9", "--calibration", own).stdout.splitlines()[1].split()
    assert float(cached[1]) < float(plain[1]) and ",0.9" in own.read_text()
    bad = tmp_path / "bad.csv"
    bad.write_text(rows_file({**GOOD, "id": "a"}).replace("\n", ",hit\n", 1).replace('""\n', '"","1.5"\n'))
    refused = run("validate", bad).stdout
    assert refused.startswith("1 row: 0 answered, 1 refused.") and "a: The hit 1.5 is not a number from 0 to 1." in refused


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Pod", "The file is not a BenchmarkJob"),
        ("[]", "The file is not a BenchmarkJob"),
        ("kind: BenchmarkJob\nstatus: [1]", "The BenchmarkJob is not started"),
        ("kind: BenchmarkJob\nmetadata: 1\nstatus: {state: Completed, report: 7}", "No run of job has all of lengths"),
        ("kind: BenchmarkJob\nstatus: {state: Completed, report: {results: 7}}", "No run of job has all of lengths"),
        ("kind: BenchmarkJob\nstatus: {state: Completed, report: {results: {a: 1}}}", "No run of job has all of lengths"),
        ("{", "is not valid YAML"),
        (JOB.replace("Completed", "Running"), "The BenchmarkJob is Running"),
        (JOB.replace("ttft", "first"), "No run of nightly has all of lengths"),
    ],
)
def test_incomparable_benchmark_is_refused(text: str, said: str, tmp_path: Path) -> None:
    assert said in refused("compare", write(tmp_path / "job.yaml", text), *LAYOUT, "--hardware", "h200")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--calibration", "/nowhere/own.csv"), "/nowhere/own.csv cannot be written: No such file or directory."),
        (("--decode", "many"), "The layout 'many' cannot be parsed"),
        (("--prefix-hit", "1"), "A hit rate must be below 1"),
        (("--hardware", "h300"), "No data for the GPU h300"),
    ],
)
def test_invalid_compare_options_are_refused(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    found = run("compare", write(tmp_path / "job.yaml", JOB), *LAYOUT, *words)
    assert said in (str(found.exception) if found.exception else found.stdout)


def test_file_that_is_no_calibration_is_not_changed(tmp_path: Path) -> None:
    own = write(tmp_path / "notes.csv", "a,b\n1,2\n")
    job = write(tmp_path / "job.yaml", JOB)
    assert "is not a calibration file" in refused("compare", job, *LAYOUT, "--calibration", own)
    assert own.read_text() == "a,b\n1,2\n"
    broken = own.write_text(rows_file({**GOOD, "isl": "many"})) and own.read_text()
    assert "isl is 'many', which is not a number: write a number." in refused("compare", job, *LAYOUT, "--calibration", own)
    assert own.read_text() == broken


def test_job_without_gpus_needs_the_hardware_option(tmp_path: Path) -> None:
    job = write(tmp_path / "job.yaml", JOB.replace("gpuType", "gpu"))
    assert "nightly does not name its GPUs" in refused("compare", job, *LAYOUT)
    assert run("compare", job, *LAYOUT, "--hardware", "h200").exit_code == 0


class Cluster(FakeApi):
    """Serve an API that returns this BenchmarkJob, or fails with this error."""

    def __init__(self, answer: Any) -> None:
        super().__init__({"get BenchmarkJob": answer})
        self.connection = SimpleNamespace(namespace="team")  # type: ignore[assignment]


def on_cluster(monkeypatch: pytest.MonkeyPatch, api: FakeApi, *words: str) -> Result:
    @asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[FakeApi]:
        yield api

    monkeypatch.setattr(connect, "open_client", opened)
    return CliRunner().invoke(app, ["plan", "compare", *words, *LAYOUT])


def test_job_from_a_cluster_is_compared_like_one_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    api = Cluster(yaml.safe_load(JOB))
    assert on_cluster(monkeypatch, api, "nightly").stdout == run("compare", write(tmp_path / "j.yaml", JOB), *LAYOUT).stdout
    assert [(call.verb, call.kind, call.name) for call in api.calls] == [("get", "BenchmarkJob", "nightly")]


@pytest.mark.parametrize(
    ("answer", "words", "said"),
    [
        (NotFound("no", 404), ("nightly",), "there is no BenchmarkJob nightly in namespace team: set -n"),
        (NotFound("no", 404), ("nightly", "-n", "a"), "there is no BenchmarkJob nightly in namespace a:"),
        (NotFound("no", 404), ("b/nightly",), "there is no BenchmarkJob nightly in namespace b:"),
        (Forbidden("alice cannot get benchmarkjobs", 403), ("nightly",), "alice cannot get benchmarkjobs"),
    ],
)
def test_missing_or_unreadable_job_is_reported(
    answer: Any, words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = on_cluster(monkeypatch, Cluster(answer), *words)
    assert isinstance(found.exception, UserError) and said in str(found.exception)


@pytest.mark.parametrize("cell", ["=HYPERLINK(1)", "+1", "-1", "@SUM(1)", "\t=1", "  =1", "\x1b[2J"])
def test_no_calibration_cell_is_a_spreadsheet_formula(cell: str) -> None:
    """No cell that the author of a job chooses becomes a formula when somebody opens the file in a spreadsheet program."""
    body = yaml.safe_load(JOB)
    body["spec"]["serviceMetadata"] = {"engine": cell, "version": cell, "gpuType": f"{cell}H200", "gpuCount": 1}
    body["status"]["report"]["results"][0] |= {"concurrency": 480, "ttft": cell}
    given = {"model": "Kimi-K2-Instruct", "precision": "fp8", "prefill": "", "decode": "1xDEP96", "hit": "0"}
    written = csv.DictReader(table(rows(body, given)).splitlines())
    cells = [text for row in written for text in row.values()]
    assert cells and [text for text in cells if text[:1] in set("=+-@\t") or not text.isprintable()] == []
