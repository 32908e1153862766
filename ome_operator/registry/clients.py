"""Clients of the API server (pods, with the pod's own ServiceAccount) and of the router beside us.

No Kubernetes client library: one GET with a token does not deserve its memory in every router pod.
"""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from ome_operator.registry.pods import UnexpectedAnswer, read
from ome_operator.registry.reconcile import Pod, WantedWorker, Worker
from ome_operator.util.unread import UNREAD

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT = aiohttp.ClientTimeout(total=5.0)
"""For one request. A pass has to end well within the 10 s after which a dead worker must be gone."""

NO_ANSWER = (aiohttp.ClientError, TimeoutError, OSError, UnexpectedAnswer)
"""What a call here may raise: nobody answers, or not what was asked for."""


def api_server() -> str:
    """The API server's address, as the kubelet tells every container; "" outside a cluster."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    return f"https://{f'[{host}]' if ':' in host else host}:{port}" if host else ""


class Pods:
    """Lists the pods of one slice."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        server: str,
        namespace: str,
        selector: str,
        account: Path,
        stems: Mapping[str, str],
    ) -> None:
        self._session, self._account, self._stems = session, account, stems
        # No resourceVersion: a consistent read, never an old one from a cache.
        self._url = f"{server.rstrip('/')}/api/v1/namespaces/{quote(namespace)}/pods?labelSelector={quote(selector)}"
        self._trust: tuple[int, ssl.SSLContext] | None = None

    async def list(self) -> tuple[Pod, ...]:
        """All of them, as they are now; raises one of `NO_ANSWER`."""
        headers = {"Authorization": f"Bearer {_text(self._account / 'token')}", "Accept": "application/json"}
        secure = self._url.startswith("https:")
        async with self._session.get(self._url, headers=headers, ssl=self._tls() if secure else True) as answer:
            if answer.status != 200:
                raise UnexpectedAnswer(f"the API server refuses to list pods: {await _words(answer)}")
            return read(await _json(answer), self._stems)

    def _tls(self) -> ssl.SSLContext:
        """Trust in the cluster's certificate authority, loaded again when its file changes."""
        file = self._account / "ca.crt"
        changed = file.stat().st_mtime_ns
        if self._trust is None or self._trust[0] != changed:
            self._trust = changed, ssl.create_default_context(cafile=str(file))
        return self._trust[1]


class Router:
    """The router's list of workers. It adds and removes in the background: an answer means that it will try."""

    def __init__(self, session: aiohttp.ClientSession, url: str, key: str, worker_key: str = "") -> None:
        self._session, self._url, self._worker_key = session, f"{url.rstrip('/')}/workers", worker_key
        self._jobs: dict[str, str] = {}
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    async def workers(self) -> tuple[Worker, ...]:
        """What it lists; raises one of `NO_ANSWER`."""
        # Its certificate is for another name than that of this pod's loopback, where nobody else can listen.
        async with self._session.get(self._url, headers=self._headers, ssl=False) as answer:
            if answer.status in (401, 403):
                raise UnexpectedAnswer(
                    f"the router wants another key than ours; delete this pod, if its Secret is new: {await _words(answer)}"
                )
            if answer.status != 200:
                raise UnexpectedAnswer(f"the router does not tell its workers: {await _words(answer)}")
            body = await _json(answer)
        try:
            return workers(body)
        except UNREAD as error:
            raise UnexpectedAnswer("the router's answer is no list of workers") from error

    async def add(self, target: WantedWorker) -> None:
        """Have it add a worker; raises one of `NO_ANSWER`."""
        body: dict[str, Any] = {"url": target.url, "worker_type": target.worker_type}
        if target.bootstrap_port is not None:
            body["bootstrap_port"] = target.bootstrap_port
        if self._worker_key:  # never the key of its control plane, which a worker could then use
            body["api_key"] = self._worker_key
        async with self._session.post(self._url, json=body, headers=self._headers, ssl=False) as answer:
            if answer.status >= 300:
                raise UnexpectedAnswer(f"the router does not add {target.url}: {await _words(answer)}")
            body = await _json(answer)
        try:
            self._jobs[target.url] = str(body.get("worker_id", ""))
        except UNREAD as error:
            raise UnexpectedAnswer(f"the router's answer about {target.url} names no worker") from error

    async def forgot(self, url: str) -> bool:
        """Whether it knows nothing of a worker that it was sent: it restarted in between, faster than we could see."""
        job = self._jobs.get(url)
        if not job:
            return False
        async with self._session.get(f"{self._url}/{quote(job)}", headers=self._headers, ssl=False) as answer:
            return answer.status == 404

    async def remove(self, worker: Worker) -> None:
        """Have it remove a worker, of whom it knows nothing any more or soon; raises one of `NO_ANSWER`.

        What runs there through this router runs on to its end.
        """
        async with self._session.delete(f"{self._url}/{quote(worker.id)}", headers=self._headers, ssl=False) as answer:
            if answer.status >= 300 and answer.status != 404:
                raise UnexpectedAnswer(f"the router does not remove {worker.url}: {await _words(answer)}")


async def engine_load(session: aiohttp.ClientSession, url: str) -> int | None:
    """Requests that run or wait in an engine, from every router; None when it does not say."""
    for path in ("/v1/loads?include=core", "/get_load"):  # the second one is what older engines have
        try:
            async with session.get(url + path) as answer:
                if answer.status == 404:
                    continue
                return _load(await _json(answer)) if answer.status == 200 else None
        except NO_ANSWER:
            return None
    return None


def _load(body: Any) -> int | None:
    """Over all data-parallel ranks; `num_reqs` of older engines counts waiting ones too."""
    try:
        if isinstance(body, dict):
            return sum(int(one["num_running_reqs"]) + int(one["num_waiting_reqs"]) for one in body["loads"])
        return sum(int(one["num_reqs"]) for one in body)
    except UNREAD:
        return None


def workers(body: Any) -> tuple[Worker, ...]:
    """What a router lists; raises what any other answer leads to."""
    return tuple(_worker(one) for one in body["workers"])


def _worker(body: dict[str, Any]) -> Worker:
    port = body.get("bootstrap_port")
    return Worker(
        id=str(body["id"]),
        url=str(body["url"]),
        worker_type=str(body["worker_type"]),
        bootstrap_port=None if port is None else int(port),
        running=int(body.get("load") or 0),
    )


async def _json(answer: aiohttp.ClientResponse) -> Any:
    try:
        return await answer.json(content_type=None)
    except (ValueError, RecursionError) as error:
        raise UnexpectedAnswer(f"{answer.url.host} answers something that is no JSON") from error


async def _words(answer: aiohttp.ClientResponse) -> str:
    text = " ".join((await answer.text(errors="replace")).split())
    return f"{answer.status} {text[:200]}".strip()


def _text(file: Path) -> str:
    """A small file as it is now: the kubelet replaces tokens while we run."""
    return file.read_text(encoding="utf-8").strip()
