"""Measures which share of the prompts of conversations a router's policy finds in the caches of prefill groups.

The engines run already, for example the tiny model on CPUs with the arguments of kimi-k2-tiny-pd-cpu-rt.yaml,
`--served-model-name=k2` and `--enable-cache-report`. The router's command follows `--`; workers and ports are added to it:

    python -m bench.policies --prefill http://A:30000 8998 --prefill http://B:30000 8998 --decode http://C:30000 \\
        -- python3 -m smg.launch_router --prefill-policy=cache_aware

It prints a line of JSON: `cached` is the share of the prompt tokens that was cached, and `load` the number of requests of
the busiest group, divided by the mean.
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import sys
from collections.abc import Sequence
from typing import Any

import aiohttp

from ome_local import ports

SYSTEM, FIRST, FURTHER = 50, (80, 140), (12, 28)
"""Number of words of the beginning that all prompts share, and (minimum, maximum) for the first turn of a conversation and
for each further turn.
"""
ANSWER = 16
"""Tokens of an answer."""
REQUESTS = re.compile(r"^sglang:num_requests_total\{[^}]*\} (\S+)", re.M)
KEY = "X-SMG-Routing-Key"


def conversations(count: int, turns: int) -> tuple[str, list[list[str]]]:
    """Return the shared beginning, and the turns of each conversation. They are always the same."""
    chance = random.Random(7)

    def words(number: int) -> str:
        return " ".join("".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 8))) for _ in range(number))

    lengths = [FIRST, *[FURTHER] * (turns - 1)]
    return words(SYSTEM), [[words(chance.randint(*length)) for length in lengths] for _ in range(count)]


class Trace:
    """Sends the requests of a run, and collects what the answers report."""

    def __init__(self, session: aiohttp.ClientSession, url: str, keyed: bool, at_once: int) -> None:
        self._session, self._url, self._keyed = session, url, keyed
        self._gate = asyncio.Semaphore(at_once)
        self.prompt = self.cached = self.requests = 0

    async def converse(self, number: int, system: str, turns: Sequence[str]) -> None:
        """Send the turns of a conversation one after the other, each with the answers to the turns before it."""
        messages = [{"role": "system", "content": system}]
        headers = {KEY: str(number)} if self._keyed else {}
        for turn in turns:
            messages.append({"role": "user", "content": turn})
            body = {"model": "k2", "messages": messages, "max_tokens": ANSWER, "temperature": 0, "ignore_eos": True}
            async with (
                self._gate,
                self._session.post(f"{self._url}/v1/chat/completions", json=body, headers=headers) as reply,
            ):
                reply.raise_for_status()
                answer = await reply.json(content_type=None)
            self.prompt += answer["usage"]["prompt_tokens"]
            self.cached += (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            self.requests += 1
            messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"] or ""})


async def served_requests(session: aiohttp.ClientSession, url: str) -> float:
    """Return the number of requests that an engine has served since its start."""
    async with session.get(f"{url}/metrics") as reply:
        return sum(float(value) for value in REQUESTS.findall(await reply.text()))


async def flush(session: aiohttp.ClientSession, url: str) -> None:
    """Empty the cache of an engine, which refuses this while requests run. Raises TimeoutError after a minute."""
    async with asyncio.timeout(60):
        while True:
            async with session.post(f"{url}/flush_cache") as reply:
                if reply.status == 200:
                    return
            await asyncio.sleep(1)


async def wait_for_workers(session: aiohttp.ClientSession, url: str, number: int) -> None:
    """Wait until the router lists this number of healthy workers. Raises TimeoutError after two minutes."""
    async with asyncio.timeout(120):
        while True:
            try:
                async with session.get(f"{url}/workers") as reply:
                    workers = (await reply.json())["workers"]
            except (aiohttp.ClientError, KeyError):
                workers = []
            if sum(worker["is_healthy"] for worker in workers) == number:
                return
            await asyncio.sleep(0.5)


async def run(arguments: argparse.Namespace, router: Sequence[str]) -> dict[str, Any]:
    """Start the router, send the trace, and return the figures. The caches of the engines are emptied before the trace is
    sent.
    """
    port, metrics = ports.choose(2)
    prefills = [url for url, _ in arguments.prefill]
    workers = [word for url, bootstrap in arguments.prefill for word in ("--prefill", url, bootstrap)] + [
        "--decode",
        arguments.decode,
    ]
    own = ["--host=127.0.0.1", f"--port={port}", f"--prometheus-port={metrics}", "--pd-disaggregation"]
    url = f"http://127.0.0.1:{port}"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=180)) as session:
        for engine in (*prefills, arguments.decode):
            await flush(session, engine)
        process = await asyncio.create_subprocess_exec(
            *router,
            *own,
            *workers,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            await wait_for_workers(session, url, len(prefills) + 1)
            before = [await served_requests(session, engine) for engine in prefills]
            trace = Trace(session, url, arguments.key, arguments.at_once)
            system, all_turns = conversations(arguments.conversations, arguments.turns)
            await asyncio.gather(*(trace.converse(number, system, turns) for number, turns in enumerate(all_turns)))
            counts = [await served_requests(session, engine) - old for engine, old in zip(prefills, before, strict=True)]
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            await process.wait()
    load = max(counts) * len(counts) / sum(counts)
    return {
        "cached": round(trace.cached / trace.prompt, 4),
        "load": round(load, 2),
        "prompt": trace.prompt,
        "requests": counts,
    }


def main() -> None:
    """Print the figures of one router."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--prefill", nargs=2, action="append", required=True, metavar=("URL", "BOOTSTRAP_PORT"))
    parser.add_argument("--decode", required=True, metavar="URL")
    parser.add_argument("--key", action="store_true", help=f"send the header {KEY}")
    parser.add_argument("--conversations", type=int, default=16)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--at-once", type=int, default=6)
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    given = parser.parse_args(words[:at])
    if not words[at + 1 :]:
        parser.error("the router's command is missing behind --")
    print(json.dumps(asyncio.run(run(given, words[at + 1 :]))))


if __name__ == "__main__":
    main()
