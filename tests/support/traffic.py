"""Sends requests to a service on this machine: one, many, or a continuous stream during a fault."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

PATIENCE_S = 10.0
"""Seconds after which a request counts as failed."""
GREEDY = {"temperature": 0, "max_new_tokens": 8}


@dataclass(frozen=True)
class Answer:
    """The result of one request: when it began, how long it took, and its error."""

    began: float
    """Start of the request in monotonic seconds."""
    seconds: float
    error: str
    """Error message; "" if tokens were returned."""


@dataclass
class Report:
    """The results of all requests that were sent."""

    answers: list[Answer] = field(default_factory=list)

    @property
    def failed_answers(self) -> list[Answer]:
        """Return the requests that failed, which are those without any token."""
        return [one for one in self.answers if one.error]

    def last_failure(self, since: float) -> float:
        """Return the seconds from the time `since` until the start of the last failed request; 0 if no request failed."""
        return max((one.began - since for one in self.failed_answers), default=0.0)

    def percentile(self, share: float) -> float:
        """Return the seconds within which this share of the successful requests was answered."""
        took = sorted(one.seconds for one in self.answers if not one.error)
        return took[min(len(took) - 1, int(share * len(took)))]


async def generate(session: aiohttp.ClientSession, url: str, text: str, within_s: float = 30.0, **more: Any) -> Answer:
    """Send a request for a few tokens."""
    began = time.monotonic()
    body = {"text": text, "sampling_params": GREEDY, **more}
    error = ""
    try:
        async with session.post(f"{url}/generate", json=body, timeout=aiohttp.ClientTimeout(within_s)) as reply:
            said = await reply.text()
            error = "" if reply.status == 200 and '"text"' in said else f"{reply.status} {said[:200]}"
    except (aiohttp.ClientError, TimeoutError) as problem:
        error = repr(problem)
    return Answer(began, time.monotonic() - began, error)


@asynccontextmanager
async def stream_of(url: str, per_second: float, within_s: float = PATIENCE_S, **more: Any) -> AsyncIterator[Report]:
    """Send this number of requests per second inside the `with` block, each over its own connection and independent of the
    others. A request fails after `within_s` seconds; `more` are fields of each request.
    """
    report = Report()
    connector = aiohttp.TCPConnector(limit=0, force_close=True)

    async def one(session: aiohttp.ClientSession, number: int) -> None:
        report.answers.append(await generate(session, url, f"request {number}", within_s, **more))

    async def arrivals(session: aiohttp.ClientSession) -> None:
        async with asyncio.TaskGroup() as running:
            for number in itertools.count():
                running.create_task(one(session, number))
                await asyncio.sleep(1 / per_second)
                if over.is_set():
                    return

    over = asyncio.Event()
    async with aiohttp.ClientSession(connector=connector) as session:
        coming = asyncio.create_task(arrivals(session))
        try:
            yield report
        finally:
            over.set()
            await coming


async def burst(url: str, count: int, concurrency: int, urls: Sequence[str] = (), **more: Any) -> Report:
    """Send this number of requests, `concurrency` at a time. The same requests also go to the other `urls`, whose answers
    are not counted.
    """
    report, numbers = Report(), iter(range(1, count + 1))  # from 1, because bootstrap room 0 counts as unset

    async def client(session: aiohttp.ClientSession) -> None:
        for number in numbers:
            room = {**more, "bootstrap_room": number} if urls else more
            others = [generate(session, other, f"request {number}", **room) for other in urls]
            answer, *_ = await asyncio.gather(generate(session, url, f"request {number}", **room), *others)
            report.answers.append(answer)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(client(session) for _ in range(concurrency)))
    return report
