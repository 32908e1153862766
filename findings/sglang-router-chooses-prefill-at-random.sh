#!/usr/bin/env bash
# The router's cache_aware policy chooses prefill workers at random when prefill and decode are separate.
#
# Software: sglang-router 0.3.2, Python 3.11, Linux.
#
# Three stubs of SGLang prefill servers and a stub of a decode server stand behind a real router. Eight conversations of four turns
# are sent; the prompt of each turn begins with the prompts of all turns before it. The script counts the conversations that reached
# more than one prefill server: with --prefill-policy cache_aware (which is also the default), and with manual and the header
# X-SMG-Routing-Key.
#
# Expected: cache_aware sends a prompt to the worker that has read its beginning, as it does for workers that do both (and as its
# help says), so that each conversation stays on one prefill server.
# Seen: the policy has no prefix tree for the workers of a role, and falls back to a random choice. Only the log at level debug says
# so ("No tree found for model"). Versions 0.1.9, 0.2.2, 0.2.4, 0.3.0 and 0.3.1 do the same. Output (the first number varies):
#
#   cache_aware               8 of 8 conversations reached more than one prefill server
#   manual with the header    0 of 8 conversations reached more than one prefill server
#
# What helps: --prefill-policy manual with X-SMG-Routing-Key, or smg 1.13.0, the successor, where cache_aware keeps conversations.
# Exit code 0: the behavior is as described. 1: the behavior has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check sglang-router==0.3.2
cd "$folder"

cat >turns.py <<'PYTHON'
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CONVERSATIONS, TURNS = 8, 4
seen = {}


def worker(mode):
    """Start the part of an SGLang server that the router asks for, and return its port."""

    class Worker(BaseHTTPRequestHandler):
        def answer(self, body):
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self):
            self.answer({"model_path": "m", "tp_size": 1, "dp_size": 1, "disaggregation_mode": mode})

        def do_POST(self):
            text = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))["text"]
            if mode == "prefill":
                seen.setdefault(text.split()[0], set()).add(self.server.server_port)
            self.answer({"text": "hello", "meta_info": {}})

        def log_message(self, *_):
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Worker)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def scattered(policy, keyed):
    """Return the number of conversations that reached more than one prefill worker."""
    port = free_port()
    command = [sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--prometheus-port", str(free_port()), "--pd-disaggregation", "--decode-policy", "round_robin"]
    command += ["--prefill-policy", policy, *(word for each in prefills for word in ("--prefill", f"http://127.0.0.1:{each}", "8998"))]
    command += ["--decode", f"http://127.0.0.1:{decode}"]
    router = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def ask(conversation, turn):
        text = " ".join(f"{conversation} says {number} " * 40 for number in range(turn + 1))
        headers = {"Content-Type": "application/json", **({"X-SMG-Routing-Key": conversation} if keyed else {})}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/generate", json.dumps({"text": text}).encode(), headers)
        urllib.request.urlopen(request, timeout=10).read()

    try:
        for _ in range(120):  # until the router has listed its workers
            time.sleep(0.5)
            try:
                ask("ready", 0)
                break
            except OSError:
                continue
        time.sleep(3)
        seen.clear()
        for turn in range(TURNS):
            for conversation in range(CONVERSATIONS):
                ask(f"c{conversation}", turn)
    finally:
        os.killpg(router.pid, signal.SIGTERM)
        router.wait(20)
    return sum(len(ports) > 1 for ports in seen.values())


prefills, decode = [worker("prefill") for _ in range(3)], worker("decode")
random = scattered("cache_aware", False)
kept = scattered("manual", True)
tail = f"of {CONVERSATIONS} conversations reached more than one prefill server"
print(f"cache_aware               {random} {tail}")
print(f"manual with the header    {kept} {tail}")
raise SystemExit(0 if random > CONVERSATIONS / 2 and kept == 0 else 1)
PYTHON

venv/bin/python turns.py
