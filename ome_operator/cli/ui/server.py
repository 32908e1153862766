"""Serves the pages over HTTP on loopback: first a complete page, then each section that changes as a server-sent event."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from importlib import resources
from typing import Any, NamedTuple

from aiohttp import web

from ome_operator import __version__
from ome_operator.cli.live.board import ClusterState, Key
from ome_operator.cli.live.details import Details, ReadLog, details
from ome_operator.cli.live.summaries import ReadPage
from ome_operator.cli.live.traffic import TrafficSamples
from ome_operator.cli.ui import render, views
from ome_operator.cli.ui.feed import Feed
from ome_operator.cli.ui.guard import HEADERS, TOKEN, TokenGuard
from ome_operator.describe.actions import CommandBuilder
from ome_operator.describe.causes import causes
from ome_operator.kube.client import Client
from ome_operator.machinery.health import PortTaken
from ome_operator.util.visible import make_visible

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
STREAMS = 32
"""Maximum number of pages that are kept up to date at the same time."""
FRESH = 5.0
"""Seconds for which the events and log lines of a service are reused."""
BEAT = 15.0
"""Seconds after which a stream sends a heartbeat if nothing has changed."""
_TYPES = {"ui.css": "text/css", "ui.js": "text/javascript", "icon.svg": "image/svg+xml"}


class Page(NamedTuple):
    """Identifies the page that a browser requested."""

    name: str
    key: Key = ("", "")
    """Namespace and name of the service, on the page of a service."""

    @property
    def title(self) -> str:
        """Title of the browser window."""
        return make_visible(self.key[1]) if self.name == "service" else {"services": "Services", "nodes": "Nodes"}[self.name]


class PodReaders(NamedTuple):
    """The functions that read logs and pages of pods."""

    log: ReadLog
    page: ReadPage


class ClusterSite:
    """The web pages of one cluster."""

    def __init__(self, client: Client, reads: PodReaders, feed: Feed, shell: CommandBuilder, cluster: str) -> None:
        self._client, self._reads, self.feed, self._shell = client, reads, feed, shell
        self._cluster = make_visible(cluster)
        self._details: dict[Key, tuple[float, Details]] = {}
        self._traffic: dict[Key, TrafficSamples] = {}

    def app(self, guard: TokenGuard) -> web.Application:
        """Return the web application with all routes behind the guard."""
        app = web.Application(middlewares=[guard.middleware])
        for path, page in (("/", self._services), ("/nodes", self._nodes), ("/service/{namespace}/{name}", self._service)):
            app.router.add_get(path, self._whole(page))
            app.router.add_get(f"/live{path}", self._live(page, guard.has_session))
        app.router.add_get("/static/{file}", _static)
        return app

    @staticmethod
    def _services(_: web.Request) -> Page:
        return Page("services")

    @staticmethod
    def _nodes(_: web.Request) -> Page:
        return Page("nodes")

    @staticmethod
    def _service(request: web.Request) -> Page:
        return Page("service", (request.match_info["namespace"], request.match_info["name"]))

    def _sections(self, page: Page) -> list[render.RenderedSection]:
        """Render the sections of the page from the newest board."""
        board = self.feed.board
        if board is None:
            return [
                render.render_section(views.Section("reading", {"why": make_visible(self.feed.problem)}), datetime.now(UTC))
            ]
        found = self._views(page, board)
        return [render.render_section(section, datetime.now(UTC)) for section in found]

    def _views(self, page: Page, board: ClusterState) -> Iterable[views.Section]:
        if page.name == "services":
            return views.services(board, self._shell)
        if page.name == "nodes":
            return views.nodes(board, self._shell)
        known = self._details.get(page.key)
        return views.service(board, page.key, known[1] if known else None, self._traffic.get(page.key), self._shell)

    # --- a page as a whole -------------------------------------------------------------------------------------------------

    def _whole(self, which: Callable[[web.Request], Page]) -> Any:
        async def handle(request: web.Request) -> web.Response:
            page = which(request)
            await self.feed.ask_after_pause()
            text = render.page(
                page.title, page.name, self._sections(page), live=f"/live{request.rel_url.raw_path}", cluster=self._cluster,
                version=__version__, problem=self.feed.problem, at=self.feed.board.at if self.feed.board else None,
            )  # fmt: skip
            missing = page.name == "service" and self.feed.board is not None and page.key not in self.feed.board.trees
            return web.Response(text=text, content_type="text/html", status=404 if missing else 200)

        return handle

    # --- what changes ------------------------------------------------------------------------------------------------------

    def _live(self, which: Callable[[web.Request], Page], admits: Callable[[web.Request], bool]) -> Any:
        async def handle(request: web.Request) -> web.StreamResponse:
            if self.feed.viewers >= STREAMS:
                return web.Response(
                    status=503, text=("too many pages are open: close one of them\n"), headers={"Retry-After": "30"}
                )
            response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream; charset=utf-8"})
            await response.prepare(request)
            self.feed.viewers += 1
            try:
                await self.feed.ask_after_pause()
                async for event, data in self._changes(which(request)):
                    if not admits(request):
                        break
                    await response.write(f"event: {event}\ndata: {json.dumps(data)}\n\n".encode())
            except ConnectionError:
                pass  # the browser closed the page
            except Exception:
                logger.exception("%s cannot be kept up to date", request.path)
            finally:
                self.feed.viewers -= 1
            return response

        return handle

    async def _changes(self, page: Page) -> AsyncIterator[tuple[str, Any]]:
        """Yield the sections that changed since the last poll and the state of each poll, forever."""
        sent, number = dict[str, str](), self.feed.number
        while True:
            for news in self._news(page, sent):
                yield news
            # Reading logs and metrics takes long in an unhealthy cluster: show what is known before reading them.
            if page.name == "service" and await self._read_details(page.key):
                for news in self._news(page, sent):
                    yield news
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT):
                    number = await self.feed.wait_for_poll(number)

    def _news(self, page: Page, sent: dict[str, str]) -> Iterator[tuple[str, Any]]:
        """Yield each section that differs from the version that was sent before, and then the state of the last poll.
        `sent` is updated: section name → digest.
        """
        drawn = self._sections(page)
        for section in drawn:
            if sent.get(section.name) != section.digest:
                sent[section.name] = section.digest
                yield "section", {"id": section.name, "html": section.html}
        yield "look", self._looked([section.name for section in drawn])

    def _looked(self, order: list[str]) -> dict[str, Any]:
        board, problem = self.feed.board, make_visible(self.feed.problem)
        at = board.at.isoformat(timespec="seconds") if board else ""
        return {"at": at, "problem": problem, "sections": order}

    async def _read_details(self, key: Key) -> bool:
        """Read events, logs and metrics of a service. Return False if they were read less than FRESH seconds ago for any
        page.
        """
        board, now = self.feed.board, asyncio.get_running_loop().time()
        if board is None or key not in board.trees or now < self._details.get(key, (0.0, None))[0]:
            return False
        body, children = board.bodies[key], board.observed[key].children.values()
        pods = {pod.partition("/")[2]: body for pod, body in board.pods.items() if pod.startswith(f"{key[0]}/")}
        mine = {rank.pod for _, _, group in board.trees[key].groups() for rank in group.ranks}
        uid = body["metadata"].get("uid")
        uids = {uid, *(child.uid for child in children if child.owner == uid)}
        uids |= {pods[name]["metadata"].get("uid") for name in mine & pods.keys()}
        found = causes(board.trees[key], (body.get("status") or {}).get("conditions") or (), self._shell)
        if len(self._details) > STREAMS:
            self._details.clear()
            self._traffic.clear()
        traffic = self._traffic.setdefault(key, TrafficSamples())
        read, _ = await asyncio.gather(
            details(self._client, self._reads.log, key[0], uids - {None, ""}, found, pods, board.simulated),
            traffic.sample(self._reads.page, body, board.trees[key], board.observed[key].pods, board.simulated),
        )
        self._details[key] = now + FRESH, read
        return True


async def _static(request: web.Request) -> web.Response:
    kind = _TYPES.get(request.match_info["file"])
    if kind is None:
        raise web.HTTPNotFound(reason="there is no such file")
    text = resources.files("ome_operator.cli.ui").joinpath("static", request.match_info["file"]).read_text()
    return web.Response(text=text, content_type=kind, charset="utf-8")


class Address(NamedTuple):
    """The two addresses of the pages, each of which contains a token."""

    open: str
    """Address for the user; its token stays valid until the command ends."""
    ticket: str
    """Address in the file with which the browser is started; its token is accepted once."""


@asynccontextmanager
async def serve_site(site: ClusterSite, port: int) -> AsyncIterator[Address]:
    """Serve the pages and poll the cluster inside the `with` block, and yield the addresses. Raises PortTaken if the
    process cannot listen on the port.
    """
    runner, guard = await _listen(site, port)
    looking = asyncio.create_task(site.feed.run())
    try:
        where = f"http://{HOST}:{runner.addresses[0][1]}/?{TOKEN}="
        yield Address(where + guard.token, where + guard.ticket())
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        await runner.cleanup()


async def _listen(site: ClusterSite, port: int) -> tuple[web.AppRunner, TokenGuard]:
    guard = TokenGuard(port)
    runner = web.AppRunner(site.app(guard), access_log=None, handle_signals=False, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port).start()
    except OSError as error:
        await runner.cleanup()
        raise PortTaken(f"cannot listen on {HOST}, port {port}: {error.strerror}") from error
    guard.cookie = f"ome-ui-{runner.addresses[0][1]}"
    return runner, guard
