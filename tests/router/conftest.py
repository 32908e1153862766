"""Fixtures: a real router with simulated engines and a simulated API server."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from ome_local import ports
from ome_operator.core.render import meta
from tests.support.waiting import wait_until

SERVICE, REVISION = "svc", "r1"
SELECTOR = meta.requirement(meta.labels(SERVICE, revision=REVISION))
"""Label selector that the operator passes to the registry of this slice."""
PORT = 30000
"""Port of the engines; each engine has its own address, as pods have."""


def address(number: int) -> str:
    """Return a loopback address that no other test process uses, because the files of this directory run in parallel."""
    return f"127.{os.getpid() // 256 % 256}.{os.getpid() % 256}.{number}"


class Engine:
    """A simulated engine that answers a router's requests. A request whose `text` is "held" is answered only after
    `released` is set.
    """

    def __init__(self, ip: str, mode: str) -> None:
        self.ip, self.mode, self.running, self.answered = ip, mode, 0, 0
        self.released = asyncio.Event()
        self.traces: list[str] = []
        """The header `traceparent` of each request."""
        self.texts: list[str] = []
        """The `text` of each request."""
        self.works = asyncio.Event()
        """Whether the scheduler works; the HTTP server always does."""
        self.works.set()
        self.returns = asyncio.Event()
        """Whether requests that have been computed are answered."""
        self.returns.set()
        self.stopped_at = 0.0
        """Time at which the scheduler has stopped, in seconds since the epoch."""
        self.probes = 0
        """Number of requests for `/health_generate`."""
        self.refuses = self.refused = 0
        """Number of requests that will be answered with 503, and number of requests that were."""
        self.is_healthy = True
        """Whether the engine calls itself healthy."""
        self._runner: web.AppRunner | None = None

    def stop_scheduler(self) -> None:
        """Answer no request for which the scheduler is needed, until `works` is set."""
        self.stopped_at = time.time()
        self.works.clear()

    async def start(self) -> None:
        """Start listening."""
        app = web.Application()
        for path in ("/health", "/ready", "/ping"):
            app.router.add_get(path, self._ok)
        app.router.add_get("/health_generate", self._health)
        app.router.add_get("/server_info", self._info)
        app.router.add_get("/model_info", self._info)
        app.router.add_get("/v1/loads", self._loads)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/generate", self._generate)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.ip, PORT).start()

    async def stop(self) -> None:
        """Stop the engine."""
        self.released.set()
        self.works.set()
        self.returns.set()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _ok(self, _: web.Request) -> web.Response:
        return web.Response(text="ok", status=200 if self.is_healthy else 503)

    async def _health(self, _: web.Request) -> web.Response:
        self.probes += 1
        await self.works.wait()
        return web.Response()

    async def _info(self, _: web.Request) -> web.Response:
        return web.json_response({"disaggregation_mode": self.mode, "model_path": "m", "tp_size": 1, "dp_size": 1})

    async def _loads(self, _: web.Request) -> web.Response:
        apart = {"prefill_inflight_queue_reqs": 0}
        load = {"num_running_reqs": self.running, "num_waiting_reqs": 0, "token_usage": 0.5, "disaggregation": apart}
        load |= {"num_used_tokens": self.running, "timestamp": time.time() if self.works.is_set() else self.stopped_at}
        return web.json_response({"loads": [load]})

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(text=f'sglang:num_requests_total{{model_name="m"}} {self.answered}\n')

    async def _generate(self, request: web.Request) -> web.Response:
        if self.refuses:
            self.refuses, self.refused = self.refuses - 1, self.refused + 1
            return web.json_response({"error": "busy"}, status=503)
        self.running += 1
        self.traces.append(request.headers.get("traceparent", ""))
        try:
            self.texts.append((await request.json()).get("text", ""))
            if self.texts[-1] == "held":
                await self.released.wait()
        finally:
            self.running -= 1
        await self.returns.wait()
        self.answered += 1
        return web.json_response({"text": self.ip, "meta_info": {}})


class Api:
    """A simulated API server that lists pods."""

    def __init__(self, port: int) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.status = 200
        self.asked: dict[str, str] = {}
        self.port = port
        self._runner: web.AppRunner | None = None

    def run(self, name: str, component: str, ip: str, **annotations: str) -> None:
        """Add a serving leader: pod 0 of the StatefulSet `name`, which is `<component>-<group>`."""
        labels = {
            "component": component,
            "leaderworkerset.sigs.k8s.io/worker-index": "0",
            "ome.io/group": name[-1],
            "apps.kubernetes.io/pod-index": "0",
        }
        self.pods[name] = {
            "metadata": {
                "name": f"{name}-0",
                "uid": f"uid-{name}",
                "labels": labels,
                "annotations": annotations,
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "controller": True}],
            },
            "status": {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]},
        }

    def begin(self, name: str, component: str, ip: str) -> None:
        """Add a leader whose container runs and whose pod is not ready, because its engine has never answered the readiness
        probe with success.
        """
        self.run(name, component, ip)
        probe = {"httpGet": {"path": "/health", "port": PORT}}
        self.pods[name]["spec"] = {"containers": [{"name": "main", "readinessProbe": probe}]}
        runs = {"name": "main", "ready": False, "state": {"running": {"startedAt": "2026-01-01T00:00:05Z"}}}
        since = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        self.pods[name]["status"] |= {"containerStatuses": [runs], "conditions": [since]}

    async def start(self) -> None:
        """Start listening, always on the same port."""
        app = web.Application()
        app.router.add_get("/api/v1/namespaces/team/pods", self._list)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()

    async def stop(self) -> None:
        """Make the API server unreachable."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _list(self, request: web.Request) -> web.Response:
        self.asked = {**request.query, "token": request.headers["Authorization"]}
        if self.status != 200:
            return web.json_response({"kind": "Status"}, status=self.status)
        return web.json_response({"kind": "PodList", "metadata": {}, "items": list(self.pods.values())})


class Process:
    """A child process whose output is written to a file."""

    def __init__(self, log: Path, *words: str, env: dict[str, str] | None = None) -> None:
        self._log, self._words, self._env = log, words, env
        self.child: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process."""
        with self._log.open("ab") as out:
            self.child = await asyncio.create_subprocess_exec(
                sys.executable, *self._words, stdout=out, stderr=out, env=self._env
            )

    async def stop(self, number: int = signal.SIGKILL) -> int:
        """Stop the process with a signal, and return its exit code."""
        assert self.child is not None
        if self.child.returncode is None:
            self.child.send_signal(number)
        return await self.child.wait()

    def log(self) -> str:
        """Return the output of the process."""
        return self._log.read_text(errors="replace")


OLD, NEW = "sglang_router", "smg"
"""Modules of the routers: sglang-router, and its successor smg, which is not in the environment of `make setup`, because
both packages install a command `smg`. `pip install --target FOLDER smg==1.13.0` and PYTHONPATH=FOLDER add it for a run.
"""


def router_process(
    folder: Path, port: int, metrics: int, *flags: str, env: dict[str, str] | None = None, module: str = OLD
) -> Process:
    """Return a real router that is not started yet."""
    here = "--host=127.0.0.1", f"--port={port}", f"--prometheus-port={metrics}"
    return Process(folder / "router.log", "-m", f"{module}.launch_router", *here, *flags, env=env)


def worker_flags(prefill: Iterable[str], decode: Iterable[str]) -> list[str]:
    """Return the arguments that give a router its workers: the prefill and the decode engines at these addresses."""
    words = [word for ip in prefill for word in ("--prefill", f"http://{ip}:{PORT}", "8998")]
    return ["--pd-disaggregation", *words, *(word for ip in decode for word in ("--decode", f"http://{ip}:{PORT}"))]


class Stage:
    """The router, its registry, the engines and the API server of a test."""

    def __init__(self, folder: Path, module: str = OLD) -> None:
        port, metrics, self.probe, served, self.answers = ports.choose(5)
        self.api = Api(served)
        self.engines = {
            ip: Engine(ip, mode)
            for ip, mode in (
                (address(11), "prefill"),
                (address(12), "prefill"),
                (address(21), "decode"),
                (address(22), "decode"),
            )
        }
        self.url = f"http://127.0.0.1:{port}"
        self.metrics = f"http://127.0.0.1:{metrics}/metrics"
        account = folder / "account"
        account.mkdir()
        (account / "token").write_text("secret\n")
        self.token = account / "token"
        quick = "--health-check-interval-secs=5", "--worker-startup-check-interval=1"
        self.router = router_process(folder, port, metrics, "--pd-disaggregation", *quick, module=module)
        self.registry = Process(
            folder / "registry.log",
            *("-m", "ome_operator", "registry", f"--router={self.url}", "--namespace=team", f"--selector={SELECTOR}"),
            *(f"--role=engine:prefill:{PORT}:1:p", f"--role=decoder:decode:{PORT}:1:d", f"--account={account}"),
            *(f"--server=http://127.0.0.1:{self.api.port}", "--address=127.0.0.1", f"--port={self.probe}"),
            f"--answer-port={self.answers}",
            f"--router-metrics={self.metrics}",
        )
        self.session = aiohttp.ClientSession()

    async def listed(self) -> set[str]:
        """Return the addresses of the workers that the router has."""
        try:
            async with self.session.get(f"{self.url}/workers") as answer:
                body = await answer.json()
        except aiohttp.ClientError:
            return set()
        return {one["url"].removeprefix("http://").partition(":")[0] for one in body["workers"]}

    async def lists(self, *ips: str, within: float) -> float:
        """Wait until the router has exactly these workers, and return the seconds that it took."""

        async def holds() -> bool:
            return await self.listed() == set(ips)

        return await wait_until(holds, within)

    async def stands(self) -> dict[str, dict[str, Any]]:
        """Return the state that the registry reports for each pod."""
        async with self.session.get(f"http://127.0.0.1:{self.probe}/workers") as answer:
            body = json.loads(await answer.text())
        return {one["pod"].removesuffix("-0"): one for one in body["workers"]}

    async def summary(self) -> dict[str, Any]:
        """Return the registry's summary of what the router and the engines do."""
        async with self.session.get(f"http://127.0.0.1:{self.probe}/summary") as answer:
            return dict(json.loads(await answer.text()))

    async def trouble(self) -> list[str]:
        """Return the problems that the registry reports."""
        async with self.session.get(f"http://127.0.0.1:{self.probe}/workers") as answer:
            told: list[str] = json.loads(await answer.text())["trouble"]
        return told

    async def health(self) -> int:
        """Return the HTTP status of the registry's health probe."""
        async with self.session.get(f"http://127.0.0.1:{self.probe}/healthz") as answer:
            return answer.status


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """Yield a router with one serving prefill leader and two serving decode leaders."""
    whole = Stage(tmp_path)
    for one in whole.engines.values():
        await one.start()
    whole.api.run("p-0", "engine", address(11))
    whole.api.run("d-0", "decoder", address(21))
    whole.api.run("d-1", "decoder", address(22))
    await whole.api.start()
    await whole.registry.start()
    await whole.router.start()
    try:
        await whole.lists(address(11), address(21), address(22), within=20)
        yield whole
    finally:
        for process in (whole.registry, whole.router):
            await process.stop()
        await whole.api.stop()
        for one in whole.engines.values():
            await one.stop()
        await whole.session.close()
