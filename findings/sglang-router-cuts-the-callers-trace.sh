#!/usr/bin/env bash
# Tracing turned on in the router cuts the trace of its caller.
#
# Software: sglang-router 0.3.2, Python 3.11, Linux.
#
# A client sends W3C's `traceparent` with a request. A stub of an SGLang server behind a real router prints the header that
# it gets: once from a router without tracing, once from a router with --enable-trace. Nothing listens at the collector's
# address, because the header does not depend on it.
#
# Expected: a router that traces adds its span to the caller's trace, so trace-id stays and parent-id changes. Without tracing
# the engine is the root of its own trace, or the header passes through.
# Seen: without tracing the header passes through, and spans of client and engine are a single trace. With --enable-trace the
# router never reads the header: it begins a new trace for each request, and the engine joins it. Output (ids are random):
#
#   the caller sends          00-00000000000000000000000000000abc-0000000000000001-01
#   the worker gets           00-00000000000000000000000000000abc-0000000000000001-01
#   ... with --enable-trace   00-fc53db28128379a122e0ab10f086c374-7b13203fb9c6b5cb-01
#
# What helps: look for a request by another attribute than its trace-id, or leave tracing off where the caller's trace counts.
# Exit code 0: the behavior is as described. 1: the behavior has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check sglang-router==0.3.2
cd "$folder"

cat >trace.py <<'PYTHON'
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CALLER = "00-00000000000000000000000000000abc-0000000000000001-01"
INFO = {"model_path": "m", "tp_size": 1, "dp_size": 1, "disaggregation_mode": "null"}
seen = []


class Worker(BaseHTTPRequestHandler):
    """The part of an SGLang server that the router asks for."""

    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.answer(INFO)

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        seen.append(self.headers.get("traceparent"))
        self.answer({"text": "hello", "meta_info": {}})

    def log_message(self, *_):
        """Stay silent."""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def traceparent(worker, *options):
    port = free_port()
    command = [sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--prometheus-port", str(free_port()), "--worker-urls", f"http://127.0.0.1:{worker}", *options]
    router = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/generate", json.dumps({"text": "hello"}).encode(),
        {"Content-Type": "application/json", "traceparent": CALLER},
    )
    seen.clear()
    try:
        for _ in range(120):
            time.sleep(0.5)
            try:
                urllib.request.urlopen(request, timeout=10).read()
                break
            except OSError:  # the router has not listed its worker yet
                continue
        return seen[-1] if seen else "no request"
    finally:
        router.terminate()
        router.wait(20)


server = ThreadingHTTPServer(("127.0.0.1", 0), Worker)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
plain = traceparent(server.server_port)
traced = traceparent(server.server_port, "--enable-trace", "--otlp-traces-endpoint", f"127.0.0.1:{free_port()}")
print(f"the caller sends          {CALLER}")
print(f"the worker gets           {plain}")
print(f"... with --enable-trace   {traced}")
trace_id = CALLER.split("-")[1]
raise SystemExit(0 if trace_id in plain and traced.startswith("00-") and trace_id not in traced else 1)
PYTHON

venv/bin/python trace.py
