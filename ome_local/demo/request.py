"""The first commands that users run for a service: a port-forward and a prompt."""

import http.client
import json
import subprocess
from typing import Any

from ome_local.cluster import Cluster
from ome_local.demo.services import Service
from ome_local.ports import choose
from ome_operator.errors import UserError

_PROMPT = {"text": "The future of AI is", "sampling_params": {"max_new_tokens": 16, "temperature": 0}}


def answer(cluster: Cluster, service: Service) -> str:
    """Send a prompt to the service, and return the two commands and the answer as text."""
    port = choose(1)[0]
    words = ["port-forward", "-n", service.name, f"service/{service.name}"]
    command = [str(cluster.program("kubectl")), *words, f"{port}:80"]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    forward = subprocess.Popen(command, env=cluster.environment(), **streams)
    try:
        assert forward.stdout is not None
        if not (said := forward.stdout.readline()).startswith("Forwarding"):
            raise UserError(f"`kubectl {' '.join(words)} {port}:80` failed: {said.strip()}")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/generate", json.dumps(_PROMPT), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        text = reply.read().decode()
    except (OSError, http.client.HTTPException) as error:
        raise UserError(f"The service is ready, but a request for tokens failed: {error}") from error
    finally:
        forward.terminate()
        forward.wait()
    if reply.status != 200:
        raise UserError(f"The service is ready, but a request for tokens was answered with {reply.status}: {text}")
    told = json.loads(text)
    count, seconds = told["meta_info"]["completion_tokens"], told["meta_info"]["e2e_latency"]
    return (
        f"  kubectl {' '.join(words)} 8080:80\n"
        f"  curl -s http://localhost:8080/generate -H 'Content-Type: application/json' -d '{json.dumps(_PROMPT)}'\n"
        f"  -> {count} tokens in {seconds:.2f} s: {told['text']!r}\n"
        f"  (the weights are random, so the text is noise; prefill, decode and router are real)"
    )
