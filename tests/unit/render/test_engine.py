"""What pods of SGLang get for being watched."""

from typing import Any

import pytest

from ome_operator.render.engine import advice, watched

SERVER = ["python3", "-m", "sglang.launch_server"]


def pod(command: list[str], **main: Any) -> dict[str, Any]:
    """A pod spec with this main container."""
    return {"containers": [{"name": "main", "command": command, **main}, {"name": "side"}]}


STARTS: list[tuple[list[str], bool]] = [
    (SERVER, True),
    (["/usr/local/bin/sglang", "serve", "--port=1"], True),
    (["/bin/bash", "-c", "exec python3 -m sglang.launch_server --tp 8"], True),
    (["python3", "-m", "sglang_router.launch_router"], False),
    (["vllm", "serve", "sglang"], False),
]


@pytest.mark.parametrize(("command", "known"), STARTS)
def test_only_servers_of_sglang_are_changed(command: list[str], known: bool) -> None:
    assert (watched(pod(command), 1) != pod(command)) == known


def test_rank_0_gets_probes_and_every_rank_another_pid_1() -> None:
    lead, worker = watched(pod(SERVER), 31000), watched(pod(SERVER), None)
    assert lead["shareProcessNamespace"] is True and worker["shareProcessNamespace"] is True
    main = lead["containers"][0]
    assert main["startupProbe"]["httpGet"] == main["readinessProbe"]["httpGet"] == {"path": "/health", "port": 31000}
    assert main["startupProbe"]["periodSeconds"] * main["startupProbe"]["failureThreshold"] == 3600
    assert main["readinessProbe"]["timeoutSeconds"] == 5
    assert worker["containers"] == pod(SERVER)["containers"], "no probe of a rank whose /health proves nothing"
    assert lead["containers"][1] == {"name": "side"}


def test_what_the_user_says_stays() -> None:
    mine = {"readinessProbe": {"tcpSocket": {"port": 1}}}
    found = watched({**pod(SERVER, **mine), "shareProcessNamespace": False}, 1)
    assert found["shareProcessNamespace"] is False
    assert found["containers"][0]["readinessProbe"] == mine["readinessProbe"]
    assert "startupProbe" in found["containers"][0]
    assert "shareProcessNamespace" not in watched({**pod(SERVER), "hostPID": True}, 1), "the API allows only one of them"


def test_a_probe_of_the_dummy_server_is_told() -> None:
    probe = {"httpGet": {"path": "/health_generate", "port": 1}}
    assert "move it" in advice(pod(SERVER, readinessProbe=probe))[0]
    assert advice(pod(SERVER)) == () and advice(pod(["vllm"], readinessProbe=probe)) == ()
