"""Test that `ome top` shows the load that a client counts itself."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from tests.node.conftest import Steps
from tests.node.serving.conftest import post
from tests.support.rig import Rig

WINDOW = 60.0
"""Seconds over which a registry calculates rates."""


class Answered(NamedTuple):
    """A request that was answered."""

    at: float
    """Time of the answer by the monotonic clock."""
    prompt: int
    output: int
    """Number of tokens."""


@contextmanager
def load(url: str) -> Iterator[list[Answered]]:
    """Send one request after the other during the `with` block. Yield the list of the answered requests, which grows during
    the block.
    """
    answered: list[Answered] = []
    stop = threading.Event()

    def send() -> None:
        while not stop.is_set():
            sampling = {"max_new_tokens": 12, "ignore_eos": True, "temperature": 0}
            prompt = f"Request {len(answered):05}: the future of AI is"
            found = post(f"{url}/generate", {"text": prompt, "sampling_params": sampling})["meta_info"]
            answered.append(Answered(time.monotonic(), found["prompt_tokens"], found["completion_tokens"]))

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield answered
    finally:
        stop.set()
        thread.join()


def top(rig: Rig) -> dict[str, Any]:
    """Return the row of the service in the output of `ome top`."""
    command = [sys.executable, "-m", "ome_operator", "top", "services", "kimi-k2-tiny", "-n", "kimi-k2-tiny", "-o", "json"]
    command += ["--kubeconfig", str(rig.cluster.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    (row,) = json.loads(done.stdout)
    assert row["source"] == "live", done.stderr
    return dict(row)


def test_shown_requests_and_tokens_equal_those_counted_by_the_client(serving: Rig, tiny: str, steps: Steps) -> None:
    with load(tiny) as answered:
        time.sleep(WINDOW + 20)  # so that the whole window lies within the load
        row = top(serving)
        until = time.monotonic() - row["age"]
    counted = [each for each in answered if until - WINDOW < each.at <= until]
    found = {
        "requestsPerSecond": len(counted) / WINDOW,
        "promptTokensPerSecond": sum(each.prompt for each in counted) / WINDOW,
        "outputTokensPerSecond": sum(each.output for each in counted) / WINDOW,
    }
    for name, rate in found.items():
        steps.note(f"ome top, {name}", f"{row[name]:.2f}, and {rate:.2f} by the client")
    assert {name: row[name] for name in found} == {name: pytest.approx(rate, rel=0.05) for name, rate in found.items()}
