"""Tests of real tokens: the requests of the seeds, streams, and tools. A disaggregated service generates the same tokens as
a single server.
"""

import json
import subprocess
import urllib.request
from typing import Any

from ome_local.realnode.spec import PLACED
from tests.node.conftest import Steps
from tests.node.serving.conftest import DIRECT, FEW, GROUPS, come_up, post, remove, tokens
from tests.node.test_pods import forwarded
from tests.support.prompts import PROMPTS, TOOL
from tests.support.rig import Rig


def test_documented_curl_request_works(serving: Rig, tiny: str) -> None:
    """The curl request of docs/seeds.md works unchanged through `kubectl port-forward service/… 8080:80`."""
    body = '{    "text": "The future of AI is",    "max_new_tokens": 50,    "temperature": 0.7  }'
    with forwarded(serving.cluster, "service/kimi-k2-tiny", 80, "kimi-k2-tiny") as local:
        headers = ["-H", "Content-Type: application/json", "-H", "Authorization: Bearer None"]
        command = ["curl", "-s", "-X", "POST", f"{local}generate", *headers, "-d", body]
        for _ in range(FEW):
            said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
            answer = json.loads(said)
            assert answer["meta_info"]["completion_tokens"] > 0
            if answer["text"]:
                return
    raise AssertionError(answer)


def test_request_length_has_an_effect_only_in_sampling_params(tiny: str) -> None:
    """The curl command of docs/seeds.md states the length beside the text, where SGLang ignores it. Only a length in
    `sampling_params` has an effect, as README.md says.
    """
    asked = {"text": "The future of AI is", "sampling_params": {"temperature": 0, "ignore_eos": True}}
    beside = post(f"{tiny}/generate", {**asked, "max_new_tokens": 3})
    inside = post(f"{tiny}/generate", {**asked, "sampling_params": {**asked["sampling_params"], "max_new_tokens": 3}})
    assert inside["meta_info"]["completion_tokens"] == 3
    assert beside["meta_info"]["completion_tokens"] > 3


def test_chat_completion_streams_events_until_done(tiny: str) -> None:
    asked = {"model": "any", "messages": [{"role": "user", "content": "Hi"}]}
    body = {**asked, "max_tokens": 6, "stream": True, "ignore_eos": True}
    request = urllib.request.Request(
        f"{tiny}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with DIRECT.open(request, timeout=60) as reply:
        assert reply.headers["Content-Type"].startswith("text/event-stream")
        events = [line[6:] for line in reply.read().decode().splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]" and len(events) > 3


def test_tool_call_matches_schema_of_the_tool(tiny: str) -> None:
    """A request with a tool returns a call whose arguments match the tool's schema. A grammar makes even a model with random
    weights fill them in.
    """
    body = {
        "model": "kimi-k2-tiny",
        "messages": [{"role": "user", "content": "Weather?"}],
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
        "max_tokens": 200,
        "temperature": 0,
    }
    (choice,) = post(f"{tiny}/v1/chat/completions", body)["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"])["unit"] in ("celsius", "fahrenheit")


def test_documented_client_program_works(tiny: str) -> None:
    """The client program of the fourth example in docs/seeds.md works. The part of the answer that only a reasoning model
    gives is not checked.
    """
    import openai  # imported here, because it takes a second in each process of tests

    direct = openai.DefaultHttpxClient(trust_env=False)
    client = openai.OpenAI(base_url=f"{tiny}/v1", api_key="EMPTY", http_client=direct)
    response = client.chat.completions.create(
        model="moonshotai/Kimi-K2-Thinking",
        messages=[{"role": "user", "content": "Solve this problem step by step: What is 15% of 240?"}],
        temperature=0.6,
        max_tokens=24,
        stream=True,
        extra_body={"ignore_eos": True},  # not in the seed: random weights may end at the first token
    )
    pieces = [chunk.choices[0].delta.content or "" for chunk in response if chunk.choices]
    assert len(pieces) > 3


def alone(ranks: int) -> dict[str, Any]:
    """Return the pod of a server that does both prefill and decode, with this tensor parallelism."""
    args = ["--model-path=/model", "--device=cpu", "--host=0.0.0.0", "--port=30000", f"--tp-size={ranks}"]
    args += ["--max-total-tokens=4096", "--max-running-requests=4", "--sleep-on-idle"]
    probe = {"httpGet": {"path": "/health", "port": 30000}, "periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 100}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"alone-{ranks}", "namespace": "default"},
        "spec": {
            **PLACED,
            "terminationGracePeriodSeconds": 1,
            "volumes": [
                {"name": "model", "hostPath": {"path": "/var/lib/ome/models/kimi-k2-tiny"}},
                {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "256Mi"}},
            ],
            "containers": [
                {
                    "name": "sglang",
                    "image": "local/sglang-cpu:0.5.23",
                    "args": args,
                    "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
                    "readinessProbe": probe,
                    "volumeMounts": [
                        {"name": "model", "mountPath": "/model", "readOnly": True},
                        {"name": "dshm", "mountPath": "/dev/shm"},
                    ],
                }
            ],
        },
    }


def of_one_server(rig: Rig, ranks: int) -> dict[str, list[int]]:
    """Start a single server, and return its tokens for each prompt."""
    pod = alone(ranks)
    rig.cluster.apply(pod)
    try:
        rig.cluster.kubectl("wait", "--for=condition=Ready", f"pod/alone-{ranks}", "--timeout=400s")
        found = rig.get("Pod", "default", f"alone-{ranks}")
        assert found is not None
        url = f"http://{found['status']['podIP']}:30000"
        return {prompt: tokens(url, prompt) for prompt in PROMPTS}
    finally:
        rig.delete("Pod", "default", f"alone-{ranks}")


def test_prefill_and_decode_generate_the_same_tokens_as_one_server(serving: Rig, tiny: str) -> None:
    assert {prompt: tokens(tiny, prompt) for prompt in PROMPTS} == of_one_server(serving, 1)


def test_groups_of_two_pods_generate_the_same_tokens_as_one_server(serving: Rig, steps: Steps) -> None:
    """Prefill and decode in groups of two pods, which connect over the network, generate the same tokens as a single server.
    Every pod satisfies the Pod Security level `restricted`.
    """
    name = "kimi-k2-tiny-tp2"
    url = come_up(serving, GROUPS, name, steps, "2 prefill + 2 decode (TP 2) + router, apply to Ready")
    try:
        ranks = {pod["metadata"]["name"]: pod["metadata"]["labels"] for pod in serving.all("Pod", name)}
        engines = [labels for labels in ranks.values() if labels["component"] in ("engine", "decoder")]
        assert sorted(one["apps.kubernetes.io/pod-index"] for one in engines) == ["0", "0", "1", "1"]
        answers = {prompt: tokens(url, prompt) for prompt in PROMPTS}
    finally:
        remove(serving, name)
    assert answers == of_one_server(serving, 2)
