"""Tests of the probes that are added to pods of known engines."""

from typing import Any

import pytest

from ome_operator.core.render.pod_template import port as port_of
from ome_operator.core.render.probes import advice, with_probes

SERVER = ["python3", "-m", "sglang.launch_server"]


def pod(command: list[str], **main: Any) -> dict[str, Any]:
    """Return a pod spec with this main container."""
    return {"containers": [{"name": "main", "command": command, **main}, {"name": "side"}]}


STARTS: list[tuple[list[str], bool]] = [
    (SERVER, True),
    (["/usr/local/bin/sglang", "serve", "--port=1"], True),
    (["/bin/bash", "-c", "exec python3 -m sglang.launch_server --tp 8"], True),
    (["vllm", "serve", "/models/kimi"], True),
    (["/bin/bash", "-c", "ray start --head && exec vllm serve $MODEL_PATH"], True),
    (["mpirun", "-np", "16", "trtllm-llmapi-launch", "trtllm-serve", "serve"], True),
    (["python", "/workspace/ktransformers/ktransformers/server/main.py"], True),
    (["python3", "-m", "sglang_router.launch_router"], False),
    (["/bin/bash", "-c", "exec ray start --block --address=$LWS_LEADER_ADDRESS:6379"], False),
    (["vllm", "bench", "serve"], False),
    (["/usr/sbin/sshd", "-D"], False),
]


@pytest.mark.parametrize(("command", "known"), STARTS)
def test_only_known_engine_servers_get_probes(command: list[str], known: bool) -> None:
    assert (with_probes(pod(command), 1) != pod(command)) == known


def test_leader_gets_probes_and_every_rank_shares_the_process_namespace() -> None:
    lead, worker = with_probes(pod(SERVER), 31000), with_probes(pod(SERVER), None)
    assert lead["shareProcessNamespace"] is True and worker["shareProcessNamespace"] is True
    main = lead["containers"][0]
    assert main["startupProbe"]["httpGet"] == main["readinessProbe"]["httpGet"] == {"path": "/health", "port": 31000}
    assert main["startupProbe"]["periodSeconds"] * main["startupProbe"]["failureThreshold"] == 3600
    assert main["readinessProbe"]["timeoutSeconds"] == 5
    assert not [name for name in worker["containers"][0] if name.endswith("Probe")], "/health of this engine proves nothing"
    assert lead["containers"][1] == {"name": "side"}


@pytest.mark.parametrize(
    ("command", "port", "path"),
    [
        (["vllm", "serve", "model"], 8000, "/health"),
        (["trtllm-serve", "model"], 8000, "/health"),
        (["python", "-m", "ktransformers.server.main"], 10002, "/v1/models"),
    ],
)
def test_probes_use_the_health_path_and_port_of_each_engine(command: list[str], port: int, path: str) -> None:
    serving = port_of({"command": command})
    main = with_probes(pod(command), serving)["containers"][0]
    assert serving == port
    assert main["readinessProbe"]["httpGet"] == main["startupProbe"]["httpGet"] == {"path": path, "port": port}


def test_user_probes_and_process_namespace_are_kept() -> None:
    mine = {"readinessProbe": {"tcpSocket": {"port": 1}}}
    found = with_probes({**pod(SERVER, **mine), "shareProcessNamespace": False}, 1)
    assert found["shareProcessNamespace"] is False
    assert found["containers"][0]["readinessProbe"] == mine["readinessProbe"]
    assert "startupProbe" in found["containers"][0]
    assert "shareProcessNamespace" not in with_probes({**pod(SERVER), "hostPID": True}, 1), "the API allows only one of them"


def test_health_generate_probe_of_sglang_gives_advice() -> None:
    probe = {"httpGet": {"path": "/health_generate", "port": 1}}
    assert "move the probe" in advice(pod(SERVER, readinessProbe=probe))[0]
    assert advice(pod(SERVER)) == () and advice(pod(["vllm", "serve"], readinessProbe=probe)) == ()


QUICK = {"name": "SGLANG_CUDA_COREDUMP_BEFORE_CRASH", "value": "false"}
OWN = {"name": "A", "value": "1"}
WANTED = ("CUDA_ENABLE_USER_TRIGGERED_COREDUMP", "CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "SGLANG_CUDA_COREDUMP")
SAID = {**QUICK, "value": "true"}


@pytest.mark.parametrize("port", [31000, None], ids=["rank 0", "a rank above 0"])
def test_core_dumps_of_engines_are_disabled(port: int | None) -> None:
    main = with_probes(pod(SERVER, env=[OWN]), port)["containers"][0]
    assert main["env"] == [OWN, QUICK]
    assert with_probes(pod(SERVER), port)["containers"][0]["env"] == [QUICK]


@pytest.mark.parametrize(
    ("command", "more"),
    [
        *((SERVER, {"env": [{"name": name, "value": "1"}]}) for name in WANTED),
        (SERVER, {"env": [SAID]}),
        (SERVER, {"env": [OWN], "envFrom": [{"configMapRef": {"name": "debugging"}}]}),
        (["sh", "-c", "CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1 exec python3 -m sglang.launch_server"], {"env": [OWN]}),
        (["vllm", "serve", "model"], {"env": [OWN]}),
    ],
    ids=[*WANTED, "the user has decided", "an object may decide", "a shell decides", "another engine"],
)
def test_user_defined_core_dump_variable_is_kept(command: list[str], more: dict[str, Any]) -> None:
    assert with_probes(pod(command, **more), 1)["containers"][0]["env"] == more["env"]
