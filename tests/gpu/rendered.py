"""Runs the rendered manifests as processes of one machine. Every pod gets an address of the loopback interface."""

import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Process:
    """A command, its environment variables, and the URL on which it will listen."""

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    url: str = ""

    def but(self, *more: str, without: tuple[str, ...] = ()) -> "Process":
        """Return the same process without the arguments that begin with any of `without`, and with more arguments."""
        kept = [word for word in self.argv if not word.startswith(without)] if without else self.argv
        return Process([*kept, *more], self.env, self.url)


def read(path: Path) -> list[Manifest]:
    """Return the workloads in a file that `ome render -o json` has written."""
    said = json.loads(path.read_text())
    return [one for one in said["items"] if one["kind"] in ("StatefulSet", "Deployment")]


def main_container(manifest: Manifest) -> dict[str, Any]:
    """Return the main container of a workload: the engine, or the router."""
    found: dict[str, Any] = manifest["spec"]["template"]["spec"]["containers"][0]
    return found


def part(manifest: Manifest) -> str:
    """Return `<service>-<component>` of a workload."""
    labels = manifest["metadata"]["labels"]
    return f"{labels['ome.io/inferenceservice']}-{labels['component']}"


def variables(manifest: Manifest, address: str) -> dict[str, str]:
    """Return the variables that the kubelet would set for the first pod, whose name resolves to `address`."""
    fields = {"metadata.name": f"{manifest['metadata']['name']}-0", "status.podIP": address}
    found: dict[str, str] = {}
    for one in main_container(manifest).get("env", ()):
        path = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        value = one["value"] if "value" in one else fields.get(path, "0")
        found[one["name"]] = _filled(value, found)
    if "LWS_LEADER_ADDRESS" in found:
        found["LWS_LEADER_ADDRESS"] = address
    return found


def process(manifest: Manifest, number: int) -> Process:
    """Return the process of an engine. Engines on one machine share its ports, so each has its own address to listen on, and
    its own port for its rendezvous.
    """
    address = f"127.0.0.{10 + number}"
    env = variables(manifest, address)
    box = main_container(manifest)
    words = [_filled(word, env) for word in (*box["command"], *box["args"])]
    words = [
        f"--host={address}" if word == "--host=0.0.0.0" else word.replace(":5757", f":{5757 + number}") for word in words
    ]
    return Process(_python(words), env, f"http://{address}:30000")


def router(manifest: Manifest, prefill: Process, decode: Process) -> Process:
    """Return the router with the addresses of both engines as arguments, because there is no cluster in which it could
    discover them.
    """
    env = variables(manifest, "127.0.0.1")
    box = main_container(manifest)
    words = [_filled(word, env) for word in (*box["command"], *box["args"])]
    kept = [
        word for word in words if not word.startswith(("--service-discovery", "--prefill-selector", "--decode-selector"))
    ]
    kept = [word for word in kept if not word.startswith("component=") and word != "--host=0.0.0.0"]
    told = ["--host=127.0.0.1", "--prefill", prefill.url, "8998", "--decode", decode.url]
    return Process(_python([*kept, *told]), env, "http://127.0.0.1:8080")


def _filled(value: str, known: dict[str, str]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda found: known.get(found[1], found[0]), value)


def _python(words: list[str]) -> list[str]:
    return [sys.executable, *words[1:]] if words[0] == "python3" else words
