"""Tests which clients may use which path of a router: the table of docs/security.md is compared with a real
sglang-router.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ome_local import ports
from tests.router.conftest import PORT, Engine, address, router_process
from tests.support.rig import ROOT
from tests.support.waiting import wait_until

ENGINE = address(41)
FIRST, SECOND = "first-0123456789abcdef", "second-0123456789abcdef"
FLAGS = {
    "none": (),
    "`--api-key`": (f"--api-key={FIRST}",),
    "`--control-plane-api-keys` (sglang-router 0.3.1 and later)": ("--control-plane-api-keys", f"1:test:admin:{SECOND}"),
    "both": (f"--api-key={FIRST}", "--control-plane-api-keys", f"1:test:admin:{SECOND}"),
}
"""Flags of the router by the first cell of a table row."""
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
DOORS: dict[str, list[tuple[str, str, dict[str, Any] | None]]] = {
    "/workers": [("GET", "/workers", None), ("POST", "/workers", {"url": f"http://{ENGINE}:{PORT}"})],
    "/flush_cache": [("POST", "/flush_cache", None)],
    "/get_loads": [("GET", "/get_loads", None)],
    "/wasm": [("GET", "/wasm", None)],
    "/v1/tokenizers": [("GET", "/v1/tokenizers", None)],
    "/parse/…": [
        ("POST", "/parse/function_call", {"text": "x", "tool_call_parser": "json", "tools": []}),
        ("POST", "/parse/reasoning", {"text": "x", "reasoning_parser": "kimi"}),
    ],
    "/generate": [("POST", "/generate", {"text": "hello", "sampling_params": {}})],
    "/v1/…": [("POST", "/v1/chat/completions", CHAT), ("POST", "/v1/completions", {"model": "m", "prompt": "hello"})],
    "/v1/models": [("GET", "/v1/models", None)],
    "/health": [("GET", "/health", None)],
    "/readiness": [("GET", "/readiness", None)],
}
"""The requests by which each path in the head of the table is tested."""


def table() -> list[list[str]]:
    """Return the cells of the table, row by row, with the head as the first row."""
    page = (ROOT / "docs/security.md").read_text(encoding="utf-8").partition("## Routers")[2]
    lines = [line for line in page.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.startswith("|---")]


HEAD, *ROWS = table()


@asynccontextmanager
async def router(folder: Path, *flags: str) -> AsyncIterator[str]:
    """Yield the address of a router that serves."""
    port, metrics = ports.choose(2)
    workers = f"--worker-urls=http://{ENGINE}:{PORT}", "--worker-startup-check-interval=1"
    process = router_process(folder, port, metrics, *workers, *flags)
    engine, url = Engine(ENGINE, "null"), f"http://127.0.0.1:{port}"
    await engine.start()
    await process.start()
    try:

        async def serves() -> bool:
            return await answered(url, "GET", "/readiness", None, "") == 200

        await wait_until(serves, 60)
        yield url
    finally:
        await process.stop()
        await engine.stop()


async def answered(url: str, method: str, path: str, body: dict[str, Any] | None, key: str) -> int:
    """Return the status of a request with this key; 0 if no server listens."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url + path, json=body, headers=headers) as got,
        ):
            return got.status
    except aiohttp.ClientError:
        return 0


def opened(cell: str, flags: str) -> set[str]:
    """Return the keys that a cell of the table names; the empty string stands for no key."""
    if cell == "open":
        return {"", FIRST, SECOND}
    if cell == "that key":
        return {FIRST if flags == "`--api-key`" else SECOND}
    return {{"the key of `--api-key`": FIRST, "the key of `--control-plane-api-keys`": SECOND}[cell]}


def test_every_path_of_the_documented_table_is_requested() -> None:
    assert {path for cell in HEAD[1:] for path in re.findall(r"`(/[^`]*)`", cell)} == DOORS.keys()
    assert [row[0] for row in ROWS] == list(FLAGS)


@pytest.mark.parametrize("row", ROWS, ids=[row[0].strip("`").partition("`")[0] for row in ROWS])
async def test_access_to_router_paths_equals_the_documented_row(tmp_path: Path, row: list[str]) -> None:
    flags, *cells = row
    wrong: list[str] = []
    async with router(tmp_path, *FLAGS[flags]) as url:
        for head, cell in zip(HEAD[1:], cells, strict=True):
            for door in re.findall(r"`(/[^`]*)`", head):
                for method, path, body in DOORS[door]:
                    for key in ("", FIRST, SECOND):
                        status = await answered(url, method, path, body, key)
                        assert status, f"nobody answers {method} {path}"
                        if (status not in (401, 403)) != (key in opened(cell, flags)):
                            wrong.append(f"{method} {path} with the key {key!r}: {status}, the page says {cell}")
    assert wrong == []
