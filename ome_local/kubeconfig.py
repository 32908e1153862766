"""Write kubeconfig files as JSON. JSON is valid YAML, so the token keeper needs no YAML library."""

import base64
import json
import os
from pathlib import Path


def with_certificate(path: Path, *, name: str, server: str, pki: Path, user: str) -> None:
    """Write a kubeconfig that contains the certificate authority, the certificate and the key, so that the file can be
    copied.
    """
    who = {
        "client-certificate-data": _inline(pki / f"{user}.crt"),
        "client-key-data": _inline(pki / f"{user}.key"),
    }
    write_atomically(path, json.dumps(_config(name, server, _inline(pki / "ca.crt"), user, who), indent=2) + "\n")


def with_token_file(path: Path, *, name: str, server: str, authority: str, user: str, token: Path) -> None:
    """Write a kubeconfig with the path of a token file. Clients read the token file again after it was renewed."""
    who = {"tokenFile": str(token)}
    write_atomically(path, json.dumps(_config(name, server, authority, user, who), indent=2) + "\n")


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that readers see either the old or the new content. Only the owner can read it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.touch(mode=0o600)
    beside.write_text(text)
    beside.replace(path)


def _inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _config(name: str, server: str, authority: str, user: str, who: dict[str, str]) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": user, "user": who}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }
