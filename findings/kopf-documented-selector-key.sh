#!/usr/bin/env bash
# A label selector under the key that kopf documents filters nothing, and no message says so.
#
# Software: kopf 1.45.2 with aiohttp 3.14.5, Python 3.11.
#
# `settings.watching.label_selectors` filters objects on the API server. kopf's own text of the setting (kopf/_cogs/configs/
# arrays.py, "Usage") shows three spellings of the key; the first is 'kopf.dev/kopfexamples'. Below, an operator starts with
# each of three spellings, and the stub of an API server prints what the list and the watch ask for.
#
# Expected: all three spellings send the same labelSelector. An unknown spelling is an error, like a key of another type.
# Seen: the text with a slash is parsed as the kind `kopf` of the group `dev/kopfexamples`, which no resource matches. The
# operator starts without a warning, lists every object of the kind, and handles those that it was told to leave out. Output:
#
#   'example.com/widgets'           list asks for no labelSelector
#   ('example.com', 'widgets')      list asks for labelSelector=mine%3Dtrue
#   'widgets.example.com'           list asks for labelSelector=mine%3Dtrue
#
# What helps: write the tuple, and look at one request of the operator before you trust the filter.
# Exit code 0: the behavior is as described. 1: the behavior has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check kopf==1.45.2 aiohttp==3.14.5
cd "$folder"

cat >filtered.py <<'PYTHON'
import ast
import asyncio
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import kopf

KEY = ast.literal_eval(sys.argv[1])
VERSION = {"groupVersion": "example.com/v1", "version": "v1"}


def kind(plural, name):
    verbs = ["list", "watch"]
    return {"resources": [{"name": plural, "singularName": name.lower(), "kind": name, "namespaced": True, "verbs": verbs}]}


ANSWERS = {
    "/api": {"versions": ["v1"]},
    "/api/v1": kind("namespaces", "Namespace"),
    "/apis": {"groups": [{"name": "example.com", "versions": [VERSION], "preferredVersion": VERSION}]},
    "/apis/example.com/v1": kind("widgets", "Widget"),
    "/apis/example.com/v1/widgets": {"metadata": {"resourceVersion": "1"}, "items": []},
}
lists, listed = [], threading.Event()


class Api(BaseHTTPRequestHandler):
    """Discovery, an empty list, and a watch without events."""

    def do_GET(self):
        path, _, query = self.path.partition("?")
        if path.endswith("/widgets") and "watch=true" not in query:
            lists.append(query)
        if "watch=true" in query:
            listed.set()
            threading.Event().wait(2)
            return
        self.send_response(200 if path in ANSWERS else 404)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(ANSWERS.get(path, {})).encode())

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
    settings.watching.label_selectors[KEY] = "mine=true"


@kopf.on.event("example.com", "v1", "widgets")
def listen(**_):
    """Nothing: the list is empty."""


async def main():
    stop = asyncio.Event()
    running = asyncio.create_task(kopf.operator(standalone=True, clusterwide=True, stop_flag=stop))
    await asyncio.to_thread(listed.wait, 30)
    stop.set()
    await running


asyncio.run(main())
asked = [part for part in lists[0].split("&") if part.startswith("labelSelector=")]
print(f"{KEY!r:<32}list asks for {''.join(asked) or 'no labelSelector'}")
PYTHON

for key in "'example.com/widgets'" "('example.com', 'widgets')" "'widgets.example.com'"; do
  venv/bin/python filtered.py "$key"
done | tee output
diff output - <<'EXPECTED'
'example.com/widgets'           list asks for no labelSelector
('example.com', 'widgets')      list asks for labelSelector=mine%3Dtrue
'widgets.example.com'           list asks for labelSelector=mine%3Dtrue
EXPECTED
