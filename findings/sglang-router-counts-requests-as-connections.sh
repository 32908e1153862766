#!/usr/bin/env bash
# The gauge smg_http_connections_active of the router counts requests that are being answered, and not the connections of its clients.
#
# Software: sglang-router 0.3.2, Python 3.11, Linux.
#
# A stub of a worker, which holds requests until it is told to answer, stands behind a real router. The script reads the gauge from the
# router's metrics in four situations: without clients; with 20 clients that have sent a request, have its answer, and keep their connection
# open (keep-alive); with three requests in progress beside them; and after these requests have been answered. The kernel's number of
# established connections to the router's port is printed next to the gauge.
#
# Expected: a gauge of active connections is 20 with 20 open connections, and 23 with three more.
# Seen: it is 0 with 20 open connections, 3 while three requests are in progress, and 0 again afterwards. Output:
#
#   no client                  connections: 0     gauge: 0
#   20 idle clients            connections: 20    gauge: 0
#   and 3 requests             connections: 23    gauge: 3
#   the requests are answered  connections: 20    gauge: 0
#
# What helps: use the gauge as the number of requests in progress. It cannot show that a router is near its limit of connections or
# file descriptors; for this, count the sockets of its process.
# Exit code 0: the behavior is as described. 1: the behavior has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check sglang-router==0.3.2
cd "$folder"

cat >gauge.py <<'PYTHON'
import http.client
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

IDLE, HELD, ESTABLISHED = 20, 3, "01"
free = threading.Event()
free.set()


class Worker(BaseHTTPRequestHandler):
    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.answer({"model_path": "m", "tp_size": 1, "dp_size": 1})

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        free.wait(60)
        self.answer({"text": "hello", "meta_info": {}})

    def log_message(self, *_):
        """Stay silent."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


worker = Server(("127.0.0.1", 0), Worker)
threading.Thread(target=worker.serve_forever, daemon=True).start()
port, metrics = free_port(), free_port()
command = [sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(port), "--worker-urls"]
command += [f"http://127.0.0.1:{worker.server_port}", "--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics)]
router = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def send(connection):
    connection.request("POST", "/generate", json.dumps({"text": "hello"}), {"Content-Type": "application/json"})


def served():
    """Return a connection on which a request has been answered, and which stays open."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    send(connection)
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        raise OSError(f"status {answer.status}")
    return connection


def until_served(seconds):
    end = time.monotonic() + seconds
    while True:
        try:
            return served()
        except (OSError, http.client.HTTPException):
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


def established():
    """Return the number of connections that the router's port has accepted, as the kernel lists them."""
    with open("/proc/net/tcp", encoding="ascii") as lines:
        rows = [line.split() for line in list(lines)[1:]]
    return sum(int(row[1].rpartition(":")[2], 16) == port and row[3] == ESTABLISHED for row in rows)


def gauge():
    """Return the gauge, once it has had three times in a row the same value."""
    seen = []
    while len(seen) < 3 or len(set(seen[-3:])) > 1:
        time.sleep(1)
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=10) as answer:
            found = re.search(r"^smg_http_connections_active\S* (\S+)$", answer.read().decode(), re.MULTILINE)
        seen.append(float(found[1]) if found else 0.0)
    return seen[-1]


def row(what):
    found = established(), gauge()
    print(f"{what:<25}  connections: {found[0]:<4}  gauge: {found[1]:g}")
    return found


try:
    until_served(60).close()
    time.sleep(2)
    rows = [row("no client")]
    idle = [served() for _ in range(IDLE)]
    rows.append(row(f"{IDLE} idle clients"))
    free.clear()
    held = [http.client.HTTPConnection("127.0.0.1", port, timeout=60) for _ in range(HELD)]
    for each in held:
        send(each)
    rows.append(row(f"and {HELD} requests"))
    free.set()
    for each in held:
        each.getresponse().read()
        each.close()
    rows.append(row("the requests are answered"))
finally:
    os.killpg(router.pid, signal.SIGTERM)
    router.wait(20)
raise SystemExit(0 if rows == [(0, 0.0), (IDLE, 0.0), (IDLE + HELD, float(HELD)), (IDLE, 0.0)] else 1)
PYTHON

venv/bin/python gauge.py
