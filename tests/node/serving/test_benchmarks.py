"""Tests of BenchmarkJobs with SGLang's published benchmarks on the real node: speed, accuracy, and requests that fail."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ome_local.realnode.spec import PLACED
from tests.node.conftest import Steps
from tests.node.serving.conftest import ON_OUR_NODE
from tests.support.rig import ROOT, Manifest, Rig

SAMPLES = ROOT / "config/samples/benchmark"
OUT = Path("/var/lib/ome/benchmarks")
USER = 65532
NAMESPACE = "kimi-k2-tiny"
pytestmark = [ON_OUR_NODE]
ENDED_WITHIN_S = 240.0


@pytest.fixture(scope="module")
def out() -> Iterator[Path]:
    """Yield the directory of results that the samples name, with data sets that the samples would download from a hub."""
    shutil.rmtree(OUT, ignore_errors=True)
    (OUT / "data").mkdir(parents=True)
    os.chown(OUT, USER, USER)
    talks = [{"conversations": [{"value": f"Tell me about {n}."}, {"value": "It is a number. " * 2}]} for n in range(40)]
    (OUT / "data/talks.json").write_text(json.dumps(talks))
    sums = [{"question": f"{n} + 1 = ?", "answer": f"#### {n + 1}"} for n in range(20)]
    (OUT / "data/sums.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in sums))
    yield OUT
    shutil.rmtree(OUT, ignore_errors=True)


def sample(file: str, name: str, **spec: Any) -> Manifest:
    """Return the BenchmarkJob of a sample file, with the tiny model as its target."""
    (body,) = [one for one in yaml.safe_load_all((SAMPLES / file).read_text()) if one["kind"] == "BenchmarkJob"]
    here = {
        "endpoint": {"inferenceService": {"name": NAMESPACE, "namespace": NAMESPACE}},
        "outputLocation": {"storageUri": f"local://{OUT}"},
        "podOverride": {"tolerations": PLACED["tolerations"]},
    }
    return {**body, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {**body["spec"], **here, **spec}}


def ended(rig: Rig, body: Manifest, steps: Steps) -> Manifest:
    """Apply the BenchmarkJob, wait until it has ended, and return its status."""
    name = body["metadata"]["name"]
    with steps.measure(f"BenchmarkJob {name}"):
        rig.cluster.apply(body)

        def holds() -> Manifest | None:
            status: Manifest = (rig.get("BenchmarkJob", NAMESPACE, name) or {}).get("status", {})
            return status if status.get("state") in ("Completed", "Failed") else None

        found = rig.wait(f"{name} ended", holds, ENDED_WITHIN_S)
    assert found is not None
    rig.delete("BenchmarkJob", NAMESPACE, name)
    return found


def test_benchmark_with_fixed_lengths_reports_results_in_status(serving: Rig, tiny: str, out: Path, steps: Steps) -> None:
    """A benchmark with requests of fixed lengths runs with one and with four requests at a time. The status has the counts,
    and the results are written as JSON and as an HTML page.
    """
    status = ended(serving, sample("kimi-k2-tiny.yaml", "speed"), steps)
    assert status["state"] == "Completed", status
    report, each = status["report"], 8
    assert [(one["concurrency"], one["requests"]) for one in report["results"][:2]] == [(1, each), (4, each)]
    assert report["failed"] == 0 and float(report["ttft"]) > 0 and float(report["tokensPerSecond"]) > 0
    found = json.loads((out / "speed/results.json").read_text())
    first = found["runs"][0]["metrics"]
    assert (first["total_input_tokens"], first["total_output_tokens"]) == (32 * each, 16 * each), "exactly what was asked"
    assert "<svg" in (out / "speed/report.html").read_text()
    steps.note("tokens per second, 4 in flight", report["tokensPerSecond"])


@pytest.mark.parametrize(("file", "requests"), [("kimi-k2-latency.yaml", 10), ("kimi-k2-throughput.yaml", 40)])
def test_documented_benchmarks_run(serving: Rig, tiny: str, out: Path, steps: Steps, file: str, requests: int) -> None:
    """The benchmarks of the documents in docs/seeds.md run. The data set consists of a few conversations of our own, and
    not of ShareGPT's conversations.
    """
    data = {"storageUri": f"local://{OUT}/data/talks.json"}
    name = file.removesuffix(".yaml")
    status = ended(serving, sample(file, name, dataset=data, maxRequestsPerIteration=requests, numConcurrency=[4]), steps)
    assert (status["state"], status["report"]["requests"]) == ("Completed", requests), status


def test_gsm8k_benchmark_asks_and_evaluates_all_questions(serving: Rig, tiny: str, out: Path, steps: Steps) -> None:
    """GSM8K's script runs with additions of one digit. A model with random weights cannot solve them, but all are asked and
    evaluated.
    """
    data = {"storageUri": f"local://{OUT}/data/sums.jsonl"}
    less = {"num_shots": "2", "max_new_tokens": "8"}
    limits = {"additionalRequestParams": less, "maxRequestsPerIteration": 6, "numConcurrency": [2]}
    status = ended(serving, sample("kimi-k2-gsm8k.yaml", "sums", dataset=data, **limits), steps)
    assert (status["state"], status["report"]["requests"]) == ("Completed", 6), status
    assert 0 <= float(status["report"]["accuracy"]) <= 1


def test_benchmark_ends_at_its_time_limit_with_chat_completions(serving: Rig, tiny: str, out: Path, steps: Steps) -> None:
    """A benchmark ends at its time limit of a minute, because more requests are requested than fit into a minute. The
    benchmark sends chat completions, which every server supports.
    """
    url = {"endpoint": {"url": f"http://{NAMESPACE}.{NAMESPACE}/v1", "apiFormat": "openai", "modelName": NAMESPACE}}
    path = "/var/lib/ome/models/kimi-k2-tiny"
    pod = {
        "tolerations": PLACED["tolerations"],
        "nodeSelector": PLACED.get("nodeSelector", {}),
        "volumes": [{"name": "tokenizer", "hostPath": {"path": path}}],
        "volumeMounts": [{"name": "tokenizer", "mountPath": "/tokenizer", "readOnly": True}],
    }
    limits = {"maxTimePerIteration": 1, "maxRequestsPerIteration": 5000, "numConcurrency": [4]}
    where = {"endpoint": url, "tokenizer": "/tokenizer", "podOverride": pod}
    body = sample("kimi-k2-tiny.yaml", "chat", trafficScenarios=["D(16,64)"], **where, **limits)
    status = ended(serving, body, steps)
    assert status["state"] == "Completed", status
    report = status["report"]
    assert report["requests"] > 0 and report["requests"] + report["unfinished"] == 5000


def test_failed_requests_make_the_benchmark_fail(serving: Rig, tiny: str, out: Path, steps: Steps) -> None:
    """Some requests fail because the server refuses prompts that are longer than the model's context, so the
    job is Failed.
    """
    long = {"trafficScenarios": ["D(9000,4)"], "numConcurrency": [1], "maxRequestsPerIteration": 2}
    status = ended(serving, sample("kimi-k2-tiny.yaml", "toolong", **long), steps)
    assert status["state"] == "Failed", status
    assert status["report"]["failed"] > 0 and status["report"]["error"]
