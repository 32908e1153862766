"""HTTP requests to an engine, and what they return."""

import json
import statistics
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.support.prompts import LONG, PROMPTS, TOOL

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(url: str, timeout_s: float = 30) -> str:
    """Return the body of a page."""
    with DIRECT.open(url, timeout=timeout_s) as reply:
        text: str = reply.read().decode()
        return text


def post(url: str, body: dict[str, Any], timeout_s: float = 120) -> dict[str, Any]:
    """Send a JSON request, and return the JSON of the answer."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with DIRECT.open(request, timeout=timeout_s) as reply:
        answer: dict[str, Any] = json.loads(reply.read())
        return answer


def tokens(url: str, text: str, count: int = 16, **more: Any) -> list[int]:
    """Return the token IDs that the model generates at temperature 0."""
    sampling = {"temperature": 0, "max_new_tokens": count, "ignore_eos": True}
    found: list[int] = post(f"{url}/generate", {"text": text, "sampling_params": sampling, **more})["output_ids"]
    return found


def all_tokens(url: str, **more: Any) -> list[list[int]]:
    """Return the token IDs for every prompt, one request after the other."""
    return [tokens(url, prompt, **more) for prompt in PROMPTS]


def streamed(url: str) -> int:
    """Return the number of events of a streamed chat. The last event must be `[DONE]`."""
    body = {"model": "any", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6, "stream": True}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with DIRECT.open(request, timeout=60) as reply:
        events = [line[6:] for line in reply.read().decode().splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]", events[-1]
    return len(events)


def called(url: str) -> dict[str, Any]:
    """Return the arguments of a call of TOOL. A grammar makes even a model with random weights fill them in."""
    body = {
        "model": "any",
        "messages": [{"role": "user", "content": "Weather?"}],
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
        "max_tokens": 200,
        "temperature": 0,
    }
    (choice,) = post(f"{url}/v1/chat/completions", body)["choices"]
    (call,) = choice["message"]["tool_calls"]
    arguments: dict[str, Any] = json.loads(call["function"]["arguments"])
    return arguments


def speed(url: str, parallel: int, count: int = 256, times: int = 3) -> float:
    """Return the generated tokens per second while `parallel` requests run at the same time: the median of `times` runs,
    after one run to warm up.
    """

    def one(number: int) -> int:
        return len(tokens(url, f"{number} {LONG}", count))

    found = []
    with ThreadPoolExecutor(parallel) as pool:
        for _ in range(times + 1):
            begin = time.perf_counter()
            total = sum(pool.map(one, range(parallel)))
            found.append(total / (time.perf_counter() - begin))
    return statistics.median(found[1:])
