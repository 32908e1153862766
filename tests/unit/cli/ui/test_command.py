"""Tests of `ome ui` as a process, with a kubeconfig and a server in place of an API server."""

import asyncio
import os
import signal
import stat
import sys
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from ome_operator.cli.ui import command
from ome_operator.kube.resources import RESOURCES
from tests.support import console
from tests.support.answers import answers
from tests.support.parts import ROOT

PLURALS = {(resource.group, resource.plural): kind for kind, resource in RESOURCES.items()}


class Api:
    """An API server that returns the objects of a cluster over HTTP."""

    def __init__(self) -> None:
        self.cluster, self.asked = console.fleet(hostile=False), list[str]()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.method)
        parts = request.path.strip("/").split("/")
        if parts[-1] == "log":
            return web.Response(text="2026-01-01T00:00:00Z last words\n")
        group = parts[1] if parts[0] == "apis" else ""
        kind = PLURALS.get((group, parts[-1]), "")
        return web.json_response({"kind": "List", "metadata": {}, "items": self.cluster.objects.get(kind, [])})


@asynccontextmanager
async def running(folder: Path, *words: str) -> AsyncIterator[tuple[Any, str, Api]]:
    """Yield the process, the address that it prints, and the API server."""
    api = Api()
    async with answers(api.answer) as connection:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [{"name": "c", "cluster": {"server": connection.server}}],
            "users": [{"name": "u", "user": {"token": "secret-token"}}],
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "code"}}],
        }
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        command = (sys.executable, "-m", "ome_operator", "ui", "--no-open", "--port", "0", "--kubeconfig", str(path), *words)
        process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        try:
            assert process.stdout is not None
            async with asyncio.timeout(60):
                said = (await process.stdout.readline()).decode()
            yield process, said.removeprefix("ome ui: ").strip(), api
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def test_ui_prints_its_address_and_ends_on_interrupt(tmp_path: Path) -> None:
    async with running(tmp_path, "--context", "here") as (process, address, api):
        assert address.startswith("http://127.0.0.1:") and "/?token=" in address
        base = address.partition("/?")[0]
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            assert (await session.get(base)).status == 401
            await session.get(address)
            async with session.get(f"{base}/live/service/kimi-k2-instruct/kimi-k2-instruct") as stream:
                text = ""
                async with asyncio.timeout(60):
                    while "last words" not in text:
                        text += (await stream.content.readuntil(b"\n\n")).decode()
            page = await (await session.get(f"{base}/service/code/qwen3-coder")).text()
            assert f"ome explain qwen3-coder -n code --kubeconfig {tmp_path}/kubeconfig --context here" in page
            assert "secret-token" not in page + text
            assert set(api.asked) == {"GET"}
            async with session.get(f"{base}/live/nodes"), asyncio.timeout(60):  # a page is open until the end
                process.send_signal(signal.SIGINT)
                assert await process.wait() == 130
                assert b"Traceback" not in await process.stderr.read()


async def test_occupied_port_gives_a_one_line_error(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, address, _), running(tmp_path, "--port", address.partition("?")[0][17:-1]) as second:
        process, said, _ = second
        assert said == "" and await process.wait() == 2
        assert b"Choose another port with --port; 0 selects a free port" in await process.stderr.read()


def test_token_is_not_in_the_arguments_of_the_browser_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address with the token is not in the arguments of the browser's process, which other users of the machine can
    list. They could open the page before the browser does.
    """
    opened = list[str]()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(webbrowser, "open", lambda address: bool(opened.append(address)) or True)
    address = "http://127.0.0.1:8765/?token=secret"
    with command._file_for_browser(address) as file:
        command._start_browser(file)
        assert opened == [file.as_uri()] and "secret" not in opened[0]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600 and file.parent == tmp_path
        assert f"url={address}" in file.read_text()
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing"))
    with command._file_for_browser(address) as file:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
