#!/usr/bin/env bash
# One decode server that fails ten requests makes the router refuse all requests for a minute, although the prefill server never fails.
#
# Software: sglang-router 0.3.2, Python 3.11, Linux.
#
# A stub of an SGLang prefill server and a stub of a decode server stand behind a real router. The prefill server answers every request with
# 200. The decode server answers twelve requests with 500, as SGLang does when a transfer of a KV cache fails, and from then on with 200.
# Ten seconds later a request is sent. The router's metrics show the failures that it has counted against each server.
#
# Expected: retries or, at worst, a short pause for the decode server; no failure is counted against the prefill server.
# Seen: each failure is counted against both servers. After ten in a row, the circuits of both are open, and the router answers 503
# ("all circuits open or unhealthy") for 60 s, although both servers work. smg 1.13.0, the successor, does the same. Output:
#
#   the defaults                       failures of prefill, which never failed: 10    ten seconds later: 503
#   --cb-timeout-duration-secs 1       failures of prefill, which never failed: 10    ten seconds later: 200
#
# What helps: --cb-timeout-duration-secs 1 --cb-success-threshold 1.
# Exit code 0: the behavior is as described. 1: the behavior has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check sglang-router==0.3.2
cd "$folder"

cat >circuits.py <<'PYTHON'
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAILURES = 12


class Server(ThreadingHTTPServer):
    daemon_threads = True
    failures = 0


def worker(mode):
    """Start a server with the endpoints of SGLang that the router calls, and return it."""

    class Worker(BaseHTTPRequestHandler):
        def answer(self, status, body):
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self):
            self.answer(200, {"model_path": "m", "tp_size": 1, "dp_size": 1, "disaggregation_mode": mode})

        def do_POST(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.server.failures > 0:
                self.server.failures -= 1
                self.answer(500, {"error": {"message": "KVTransferError"}})
            else:
                self.answer(200, {"text": "hello", "meta_info": {}})

        def log_message(self, *_):
            """Stay silent."""

    server = Server(("127.0.0.1", 0), Worker)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def seen(*flags):
    """Return the failures that the router has counted against prefill, and the status of a request ten seconds after the last one."""
    port, metrics = free_port(), free_port()
    urls = [f"http://127.0.0.1:{one.server_port}" for one in (prefill, decode)]
    command = [sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(port), "--disable-retries"]
    command += ["--prometheus-port", str(metrics), "--pd-disaggregation", "--prefill", urls[0], "8998", "--decode", urls[1], *flags]
    router = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def ask():
        body, headers = json.dumps({"text": "hello"}).encode(), {"Content-Type": "application/json"}
        try:
            with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/generate", body, headers), timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    try:
        for _ in range(120):  # until the router has listed its workers
            if ask() == 200:
                break
            time.sleep(0.5)
        decode.failures = FAILURES
        for _ in range(FAILURES):
            ask()
        decode.failures = 0
        time.sleep(10)
        status = ask()
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    finally:
        os.killpg(router.pid, signal.SIGTERM)
        router.wait(20)
    found = re.search(rf'^smg_worker_cb_outcomes_total{{worker="{urls[0]}",outcome="failure"}} (\d+)', text, re.MULTILINE)
    return int(found[1]) if found else 0, status


prefill, decode = worker("prefill"), worker("decode")
default = seen()
short = seen("--cb-timeout-duration-secs", "1", "--cb-success-threshold", "1")
for name, (failures, status) in {"the defaults": default, "--cb-timeout-duration-secs 1": short}.items():
    print(f"{name:<35}failures of prefill, which never failed: {failures}    ten seconds later: {status}")
raise SystemExit(0 if default[0] >= 10 and default[1] == 503 and short[1] == 200 else 1)
PYTHON

venv/bin/python circuits.py
