"""Tests that a recording contains no secret, wherever users put it, and that redaction does not change decisions."""

import gzip
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from ome_operator.api import InferenceService
from ome_operator.core.observed.objects import Deps, Observed, Refusal, Termination
from ome_operator.core.reconcile.sync import sync
from ome_operator.recorder import recording, replay
from ome_operator.recorder.passes import Pass, PassRecorder, SharedNodes
from ome_operator.recorder.redaction import Redaction
from tests.support import parts
from tests.support.simulator import World

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WORD = "Zq7xW"
"""Begins every secret of these tests."""


def secret(number: int) -> str:
    return f"{WORD}{number}-hunter-{number}"


def everywhere() -> tuple[InferenceService, Deps]:
    """Return a service and a runtime with a secret in every place where users can write text."""
    box = parts.container(
        image="engine:1",
        command=["sh", "-c", f"export HF_TOKEN={secret(1)}; exec serve --api-key {secret(2)} --admin-api-key={secret(3)}"],
        args=["--api-key", secret(4), f"--password={secret(5)}", "--port=30000", f"--url=https://me:{secret(6)}@host/x"],
        env=[
            {"name": "HF_TOKEN", "value": secret(7)},
            {"name": "PLAIN", "value": secret(8)},
            {"name": "SHORT", "value": f"{WORD}9"},
            {"name": "REF", "valueFrom": {"secretKeyRef": {"name": "team-secret", "key": "token"}}},
        ],
        livenessProbe={"httpGet": {"path": "/", "port": 1, "httpHeaders": [{"name": "Authorization", "value": secret(10)}]}},
        lifecycle={"preStop": {"exec": {"command": ["curl", "-H", f"Authorization: Bearer {secret(11)}"]}}},
        resources={"limits": {"nvidia.com/gpu": 1}},
    )
    volume = {"name": "v", "csi": {"driver": "d", "volumeAttributes": {"secretKey": secret(12), "apiKey": secret(13)}}}
    part = {"runner": box, "volumes": [volume], "initContainers": [{"name": "i", "image": "i", "env": box["env"]}]}
    router = {"runner": parts.container("router", image="router:1", args=["--port=8080", "--api-key", secret(14)])}
    runtime = parts.runtime(engineConfig=part, routerConfig=router)
    engine = {"runner": {"name": "ome-container", "env": [{"name": "MINE", "value": secret(15)}]}}
    notes = {
        "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"env": {"value": secret(16)}}),
        "example.com/api-key": secret(17),
        "example.com/note": f"curl 'https://x.example/?token={secret(18)}&a=b'",
    }
    service = parts.service(engine=engine, router={}, annotations=notes)
    service = replace(service, labels={"password": secret(19)})
    return service, parts.deps(parts.model(), runtime)


def passes() -> list[Pass]:
    """Return the passes over this service from its creation until Ready, with secrets in messages of the kubelet and the
    API server.
    """
    service, deps = everywhere()
    world, made = World(service, deps, 1), []
    for number in range(8):
        seen = told(world.observed()) if number > 3 else world.observed()
        recorder = PassRecorder(world.service, world.deps, seen)
        plan = sync(world.service, recorder.deps, recorder.observed, world.now)
        made.append(recorder.finish_pass(world.now, plan, SharedNodes()))
        world.carry_out(plan)
        world.step()
    return made


def told(seen: Observed) -> Observed:
    words = f"ValueError: bad key {secret(8)} for token: {secret(20)}"
    ending = Termination("engine", "Error", 1, f"{words} hf_{WORD}abcdefgh", "2026-01-01T00:00:00Z")
    refusal = Refusal("Forbidden", f"denied: Authorization: Bearer {secret(21)}")
    pods = tuple(pod._replace(message=words, reason="Error", ending=ending, restarts=1) for pod in seen.pods)
    return replace(seen, pods=pods, refusals={("Service", "svc"): refusal}, warnings=(f"password={secret(22)}",))


def test_recording_contains_no_secret() -> None:
    content = recording.encode(recording.to_json({"team/svc": passes()}, "0", "test", NOW), True)
    text = gzip.decompress(content).decode()
    left = {text[at : at + 30] for at in range(len(text)) if text.startswith(WORD, at)}
    assert not left
    assert "team-secret" in text, "the name of a Secret is not secret"
    assert "--port=30000" in text and "Ready" in text


def test_redacted_recording_gives_the_same_decisions() -> None:
    found = recording.decode(recording.encode(recording.to_json({"team/svc": passes()}, "0", "test", NOW), False))
    assert found.redacted > 15
    steps = list(replay.replay(found.services["team/svc"], True))
    assert [step.other for step in steps] == [()] * len(steps)
    assert any(step.steps for step in steps)


def test_equal_values_are_redacted_equally() -> None:
    redaction = Redaction()
    value = [{"name": "A", "value": "x1"}, {"name": "B", "value": "x1"}, {"name": "C", "value": "x2"}]
    redaction.collect_values(value)
    first, second, third = (item["value"] for item in redaction.replace_values(value))
    assert first == second != third
    assert {first, second, third}.isdisjoint({"x1", "x2"})


@pytest.mark.parametrize(
    "plain",
    [
        {"args": ["--tokenizer-path", "/models/tiny", "--max-total-tokens", "4096", "--tokenizer-worker-num", "4"]},
        {"secretName": "mine", "imagePullSecrets": [{"name": "pull"}], "pull_secrets": ["pull"]},
        {"storageUri": "hf://moonshotai/Kimi-K2-Instruct@main", "message": "0/16 nodes are available: 16 Insufficient cpu"},
        {"env": [{"name": "MODEL_PATH", "value": "/mnt/models/tiny"}]},
        {"automountServiceAccountToken": True, "priority": 3, "nothing": None},
    ],
)
def test_values_that_are_not_secret_are_not_redacted(plain: Any) -> None:
    redaction = Redaction()
    redaction.collect_values(plain)
    assert redaction.replace_values(plain) == plain


def test_name_that_equals_a_variable_value_is_not_redacted() -> None:
    redaction = Redaction(["kimi-k2-instruct-engine"])
    value = {"env": [{"name": "WHO", "value": "kimi-k2-instruct"}], "message": "pod kimi-k2-instruct-engine-0 ends"}
    redaction.collect_values(value)
    assert redaction.replace_values(value)["message"] == value["message"]
    assert redaction.replace_values(value)["env"][0]["value"] != "kimi-k2-instruct"
