"""Tests of every place from which a credential leaves a process of this project: code that sets the header Authorization,
opens an HTTP session, or creates the client of an object store.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3] / "ome_operator"

GUARDED = "the grant of the Secret is compared with the URL that is sent"
READS = "reads the header of a request that it answers"
API = "the process's own token for the API server, which is sent to that server only"
NONE = "sends no credential"
OWN_POD = "to the router in the same pod, with the key of that router"
SENDERS = {
    "agent/peers.py:_ask": "a signature for one file, one address and two minutes, and not the token of agents",
    "agent/peers.py:_is_signed": READS,
    "controllers/router_pages.py:__init__": NONE,
    "kube/connection.py:_authorization": "reads the credentials of a kubeconfig",
    "kube/connection.py:_identify": API,
    "kube/connection.py:session": API,
    "machinery/health.py:handle": READS,
    "recorder/secret_texts.py:": "names the headers that recordings redact",
    "registry/clients.py:__init__": OWN_POD,
    "registry/clients.py:list": API,
    "registry/loop.py:run": "a session whose credentials registry/clients.py sets",
    "registry/engine_client.py:__init__": "to the engines of the same service, with the key of these engines",
    "registry/unserved.py:handle": READS,
    "storage/http.py:_get": GUARDED,
    "storage/http.py:session": NONE,
    "storage/object_store.py:azure": "through a proxy on loopback that connects to the host of the grant only",
    "storage/object_store.py:google": "through a proxy on loopback that connects to the host of the grant only",
    "storage/object_store.py:s3": "through a proxy on loopback that connects to the host of the grant only",
}
"""File and function -> why a credential reaches nobody else."""
_CLIENTS = {"ClientSession", "GCSStore", "AzureStore", "S3Store"}


def senders(tree: ast.AST, function: str = "") -> Iterator[str]:
    """Yield the name of the function around each use of the header Authorization, of aiohttp's session, and of the client of
    an object store.
    """
    for node in ast.iter_child_nodes(tree):
        inner = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        called = node.func if isinstance(node, ast.Call) else None
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        header = isinstance(node, ast.Constant) and str(node.value).lower() == "authorization"
        if header or name in _CLIENTS:
            yield inner
        yield from senders(node, inner)


def test_every_code_place_that_sends_credentials_is_listed() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{function}"
        for path in ROOT.rglob("*.py")
        for function in senders(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == set(SENDERS)
