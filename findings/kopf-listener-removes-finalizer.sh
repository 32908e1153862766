#!/usr/bin/env bash
# An operator that only listens removes the finalizer of another operator.
#
# Software: kopf 1.45.2 with aiohttp 3.14.5, Python 3.11.
#
# Two operators are made with kopf and watch the same kind. The first has a deletion handler, so it marks each object with
# kopf's default finalizer. The second, which runs below, has nothing but `@kopf.on.event`, kopf's handler for "silent spies".
#
# Expected: the second operator only reads. A finalizer belongs to the controller that added it.
# Seen: the second operator removes the finalizer of every object that it lists, because kopf recognizes the finalizer by its name and
# "there are no handlers requiring it" in this process. The first operator's clean-up then never runs. Output:
#
#   heard of widget w
#   PATCH /apis/example.com/v1/namespaces/default/widgets/w [{'op': 'test', 'path': '/metadata/resourceVersion', 'value': '1'}, {'op': 'remove', 'path': '/metadata/finalizers'}]
#
# What helps: set `settings.persistence.finalizer` to a name of your own in every operator, the listeners included.
# Exit code 0: the behavior is as described. 1: the behavior has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check kopf==1.45.2 aiohttp==3.14.5
cd "$folder"

cat >listener.py <<'PYTHON'
import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import kopf

WIDGET = {
    "apiVersion": "example.com/v1",
    "kind": "Widget",
    "metadata": {
        "name": "w", "namespace": "default", "uid": "1", "resourceVersion": "1",
        "finalizers": ["kopf.zalando.org/KopfFinalizerMarker"],
    },
    "spec": {},
}
VERSION = {"groupVersion": "example.com/v1", "version": "v1"}


def kind(plural, name):
    return {"resources": [{"name": plural, "singularName": name.lower(), "kind": name, "namespaced": True, "verbs": []}]}


ANSWERS = {
    "/api": {"versions": ["v1"]},
    "/api/v1": kind("namespaces", "Namespace"),
    "/apis": {"groups": [{"name": "example.com", "versions": [VERSION], "preferredVersion": VERSION}]},
    "/apis/example.com/v1": kind("widgets", "Widget"),
    "/apis/example.com/v1/widgets": {"metadata": {"resourceVersion": "1"}, "items": [WIDGET]},
}
for version in ("/api/v1", "/apis/example.com/v1"):
    ANSWERS[version]["resources"][0]["verbs"] = ["list", "watch", "patch"]
writes, written = [], threading.Event()


class Api(BaseHTTPRequestHandler):
    """What kopf asks the Kubernetes API for: discovery, a list, a watch without events, and whatever it writes."""

    def answer(self, body):
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def do_GET(self):
        path, _, query = self.path.partition("?")
        if "watch=true" in query:
            written.wait(30)
        else:
            self.answer(ANSWERS.get(path, {}))

    def do_PATCH(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        writes.append(f"PATCH {self.path} {body}")
        self.answer(WIDGET)
        written.set()

    def log_message(self, *_):
        """Stay silent."""


api = ThreadingHTTPServer(("127.0.0.1", 0), Api)
api.daemon_threads = True
threading.Thread(target=api.serve_forever, daemon=True).start()


@kopf.on.login()
def login(**_):
    return kopf.ConnectionInfo(server=f"http://127.0.0.1:{api.server_port}")


@kopf.on.startup()
def configure(settings, **_):
    settings.scanning.disabled = True  # so that the stub above needs no list of namespaces and of CRDs
    settings.posting.enabled = False


@kopf.on.event("example.com", "v1", "widgets")
def listen(name, **_):
    print(f"heard of widget {name}", flush=True)


async def main():
    stop = asyncio.Event()
    running = asyncio.create_task(kopf.operator(standalone=True, clusterwide=True, stop_flag=stop))
    await asyncio.to_thread(written.wait, 30)
    stop.set()
    await running


asyncio.run(main())
print("\n".join(writes) or "nothing was written")
removes = [line for line in writes if "'op': 'remove', 'path': '/metadata/finalizers'" in line]
raise SystemExit(0 if removes else 1)
PYTHON

venv/bin/python listener.py
