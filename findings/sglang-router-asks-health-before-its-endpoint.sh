#!/usr/bin/env bash
# The router uses --health-check-endpoint only for workers that it has accepted, and it accepts only workers whose /health answers 200.
#
# Software: sglang-router 0.3.2, Python 3.11, Linux.
#
# A stub of a worker stands behind a real router that is started with --health-check-endpoint /ready. The stub answers /ready and requests with
# 200. In the first run it answers /health with 200, too. In the second run it answers /health with 404, like a server without this page. The
# script lists which of the two pages the router requests within 15 s, and the status of a request at the end.
#
# Expected: the router requests /ready from the beginning, and never /health, so both runs end with 200.
# Seen: the first check, which decides whether the worker is accepted, is always /health; /ready replaces it in the checks that follow. A worker
# without /health is checked again and again at growing intervals, and no request reaches it. Output:
#
#   /health answers 200    the first request: /health    requests to /ready: yes    a request: 200
#   /health answers 404    the first request: /health    requests to /ready: no     a request: 503
#
# What helps: a worker behind this router needs a page /health that answers 200 when it can take requests; --health-check-endpoint may
# make the later checks cheaper.
# Exit code 0: the behavior is as described. 1: the behavior has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check sglang-router==0.3.2
cd "$folder"

cat >health.py <<'PYTHON'
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECONDS = 15


class Server(ThreadingHTTPServer):
    daemon_threads = True


def worker(health, asked):
    """Start a server with the endpoints of SGLang that the router calls, and return it. It appends the health pages that are requested."""

    class Worker(BaseHTTPRequestHandler):
        def answer(self, status, body):
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self):
            if self.path in ("/health", "/ready"):
                asked.append(self.path)
            self.answer(health if self.path == "/health" else 200, {"model_path": "m", "tp_size": 1, "dp_size": 1})

        def do_POST(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.answer(200, {"text": "hello", "meta_info": {}})

        def log_message(self, *_):
            """Stay silent."""

    server = Server(("127.0.0.1", 0), Worker)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def status_of(port):
    body, headers = json.dumps({"text": "hello"}).encode(), {"Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/generate", body, headers), timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def seen(health):
    """Return the health pages that the router has requested, in order, and the status of a request after some seconds."""
    asked, port = [], free_port()
    url = f"http://127.0.0.1:{worker(health, asked).server_port}"
    command = [sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(port), "--worker-urls", url]
    command += ["--prometheus-port", str(free_port()), "--health-check-endpoint", "/ready", "--health-check-interval-secs", "1"]
    router = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        time.sleep(SECONDS)
        return list(asked), status_of(port)
    finally:
        os.killpg(router.pid, signal.SIGTERM)
        router.wait(20)


found = {health: seen(health) for health in (200, 404)}
for health, (asked, status) in found.items():
    then = "yes" if "/ready" in asked else "no"
    print(f"/health answers {health}    the first request: {asked[0]}    requests to /ready: {then:<3}    a request: {status}")
(good, served), (bad, refused) = found[200], found[404]
as_described = good[0] == "/health" and "/ready" in good and served == 200 and set(bad) == {"/health"} and refused == 503
raise SystemExit(0 if as_described else 1)
PYTHON

venv/bin/python health.py
