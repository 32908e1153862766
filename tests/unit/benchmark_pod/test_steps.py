"""Tests of the project's own steps in the pod of a benchmark, with files, a web server and an object store on loopback."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from ome_operator.benchmark_pod import steps
from ome_operator.cli.benchmark import app
from ome_operator.errors import UserError
from ome_operator.storage.listing import SourceError

OUTCOME = {"completed": 2, "errors": ["", ""], "output_throughput": 9.0, "median_ttft_ms": 5.0}


class Store(BaseHTTPRequestHandler):
    """An object store that keeps the objects it receives and returns them."""

    kept: ClassVar[dict[str, bytes]] = {}

    def do_PUT(self) -> None:
        """Store the object."""
        Store.kept[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("ETag", '"e"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        """Return the object."""
        data = Store.kept.get(self.path)
        self.send_response(200 if data is not None else 404)
        self.send_header("Content-Length", str(len(data or b"")))
        self.end_headers()
        self.wfile.write(data or b"")

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the URL at which the store listens."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Store.kept.clear()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def plan(tmp_path: Path, output: dict[str, Any] | None = None, outcome: dict[str, Any] = OUTCOME) -> dict[str, Any]:
    """Return a plan of one run. The result of the run is already in the folder."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/0.json").write_text(json.dumps({"result": outcome}))
    run = {"scenario": "D(1,1)", "concurrency": 1, "program": "serving"}
    out = {"path": str(tmp_path / "out/speed"), **(output or {})}
    return {"name": "team/speed", "target": "http://svc", "service": {}, "runs": [run], "dataset": {}, "output": out}


def test_report_writes_results_into_folder_of_benchmark(tmp_path: Path) -> None:
    message = tmp_path / "message"
    assert steps.report(plan(tmp_path), tmp_path, tmp_path / "secrets", message)
    assert {one.name for one in (tmp_path / "out/speed").iterdir()} == {"results.json", "report.html"}
    assert json.loads(message.read_text())["output"] == str(tmp_path / "out/speed")


def test_results_are_uploaded_to_an_object_store(tmp_path: Path, store: str) -> None:
    secret = tmp_path / "secrets/output"
    secret.mkdir(parents=True)
    for name, value in {"accessKeyId": "id", "secretAccessKey": "key\n"}.items():
        (secret / name).write_text(value)
    out = {"uri": "s3://bucket/runs/speed", "parameters": {"endpoint": store}}
    assert steps.report(plan(tmp_path, out), tmp_path, tmp_path / "secrets", tmp_path / "message")
    assert set(Store.kept) == {"/bucket/runs/speed/results.json", "/bucket/runs/speed/report.html"}
    assert json.loads(Store.kept["/bucket/runs/speed/results.json"])["runs"][0]["requests"] == 2
    assert json.loads((tmp_path / "message").read_text())["output"] == "s3://bucket/runs/speed"


def test_data_set_is_downloaded_from_a_url(tmp_path: Path, store: str) -> None:
    Store.kept["/sets/a.jsonl"] = b'{"question": "?"}\n'
    wanted = {"uri": f"{store}/sets/a.jsonl", "path": str(tmp_path / "dataset/a.jsonl")}
    steps.prepare({"dataset": wanted}, tmp_path, tmp_path)
    assert (tmp_path / "dataset/a.jsonl").read_bytes() == Store.kept["/sets/a.jsonl"]
    assert "def main" in (tmp_path / "inside.py").read_text()
    with pytest.raises(SourceError, match="404"):
        steps.prepare({"dataset": {**wanted, "uri": f"{store}/none"}}, tmp_path, tmp_path)


def command(tmp_path: Path, told: dict[str, Any]) -> Any:
    """Return the result of `ome benchmark report` for a plan."""
    words = ["report", "--plan", json.dumps(told), "--work", str(tmp_path), "--message", str(tmp_path / "m")]
    return CliRunner().invoke(app, words)


def test_failed_requests_give_a_nonzero_exit_code(tmp_path: Path) -> None:
    done = command(tmp_path, plan(tmp_path, outcome={**OUTCOME, "errors": ["", "Bad Gateway"]}))
    assert (done.exit_code, "requests failed" in done.output) == (1, True)


def test_unwritable_output_location_gives_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    done = command(tmp_path, plan(tmp_path))
    assert isinstance(done.exception, UserError)
    assert str(done.exception).startswith("spec.outputLocation: ")
    assert json.loads((tmp_path / "m").read_text())["requests"] == 2, "the measurements are kept"
