"""A client of the API server, which lists pods with the ServiceAccount of the router's pod, and a client of the router in
the same pod.

The clients use no Kubernetes client library: it would take memory in every router pod, and only a single GET request is
needed.
"""

import os
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from ome_operator.registry.pods import UnexpectedAnswer, parse_pods
from ome_operator.registry.records import Pod, WantedWorker, Worker
from ome_operator.util.untrusted_json import PARSE_ERRORS

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT = aiohttp.ClientTimeout(total=5.0)
"""Timeout of one request. A short timeout is needed because a dead worker must be removed within 10 s."""

NO_ANSWER = (aiohttp.ClientError, TimeoutError, OSError, UnexpectedAnswer)
"""Exceptions that the calls in this module raise if the server does not answer, or if it sends an invalid response."""


def api_server() -> str:
    """Return the URL of the API server from the environment that the kubelet gives to every container, or "" outside a
    cluster.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    return f"https://{f'[{host}]' if ':' in host else host}:{port}" if host else ""


class PodLister:
    """Lists the pods of one slice (the pods of one revision of a service)."""

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
        # No resourceVersion: a consistent read instead of an old state from a cache.
        self._url = f"{server.rstrip('/')}/api/v1/namespaces/{quote(namespace)}/pods?labelSelector={quote(selector)}"
        self._trust: tuple[int, ssl.SSLContext] | None = None

    async def list(self) -> tuple[Pod, ...]:
        """Return all pods of the slice in their current state. Raises one of the exceptions in `NO_ANSWER` if the list
        failed.
        """
        headers = {"Authorization": f"Bearer {_read_text(self._account / 'token')}", "Accept": "application/json"}
        uses_tls = self._url.startswith("https:")
        async with self._session.get(self._url, headers=headers, ssl=self._tls() if uses_tls else True) as answer:
            if answer.status != 200:
                raise UnexpectedAnswer(
                    f"the API server rejects the request for the list of pods: {await _error_text(answer)}"
                )
            return parse_pods(await _read_json(answer), self._stems)

    def _tls(self) -> ssl.SSLContext:
        """Return a TLS context that trusts the cluster's certificate authority. The certificate is loaded again when its
        file changes.
        """
        file = self._account / "ca.crt"
        changed = file.stat().st_mtime_ns
        if self._trust is None or self._trust[0] != changed:
            self._trust = changed, ssl.create_default_context(cafile=str(file))
        return self._trust[1]


class RouterClient:
    """Client of the router's worker list. The router adds and removes workers in the background: a successful response
    only means that the router will try.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str, key: str, worker_key: str = "") -> None:
        self._session, self._url, self._worker_key = session, f"{url.rstrip('/')}/workers", worker_key
        self._jobs: dict[str, str] = {}
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    async def workers(self) -> tuple[Worker, ...]:
        """Return the workers that the router lists. Raises one of the exceptions in `NO_ANSWER` if the request failed."""
        # No verification: the router's certificate is for another name than the loopback address, where only this pod can
        # listen.
        async with self._session.get(self._url, headers=self._headers, ssl=False) as answer:
            if answer.status in (401, 403):
                raise UnexpectedAnswer(
                    "the router rejects the registry's API key (if the Secret was replaced, delete this pod): "
                    f"{await _error_text(answer)}"
                )
            if answer.status != 200:
                raise UnexpectedAnswer(f"the router does not return its workers: {await _error_text(answer)}")
            body = await _read_json(answer)
        try:
            return parse_workers(body)
        except PARSE_ERRORS as error:
            raise UnexpectedAnswer("the router's response is not a list of workers") from error

    async def add(self, target: WantedWorker) -> bool:
        """Request the router to add a worker. Return whether the router accepted the request; False if the router is already
        adding this worker, or lists it. Raises one of the exceptions in `NO_ANSWER` if the request failed.
        """
        body: dict[str, Any] = {"url": target.url, "worker_type": target.worker_type}
        if target.bootstrap_port is not None:
            body["bootstrap_port"] = target.bootstrap_port
        if self._worker_key:  # never the key for the router's worker list, because the worker could then use this key
            body["api_key"] = self._worker_key
        async with self._session.post(self._url, json=body, headers=self._headers, ssl=False) as answer:
            if answer.status == HTTPStatus.CONFLICT:  # smg 1.13.0; sglang-router 0.3.2 accepts the same request again
                return False
            if answer.status >= 300:
                raise UnexpectedAnswer(f"the router does not add {target.url}: {await _error_text(answer)}")
            body = await _read_json(answer)
        try:
            self._jobs[target.url] = str(body.get("worker_id", ""))
        except PARSE_ERRORS as error:
            raise UnexpectedAnswer(f"the router's response about {target.url} contains no worker ID") from error
        return True

    async def has_forgotten(self, url: str) -> bool:
        """Return whether the router no longer knows the last request to add the worker with this URL, because the router has
        restarted.
        """
        job = self._jobs.get(url)
        if not job:
            return False
        async with self._session.get(f"{self._url}/{quote(job)}", headers=self._headers, ssl=False) as answer:
            return answer.status == 404

    async def remove(self, worker: Worker) -> None:
        """Request the router to remove a worker. A worker that the router does not list is treated as removed. Raises one of
        the exceptions in `NO_ANSWER` if the request failed.

        Requests that this router has already sent to the worker continue to their end.
        """
        async with self._session.delete(f"{self._url}/{quote(worker.id)}", headers=self._headers, ssl=False) as answer:
            if answer.status >= 300 and answer.status != 404:
                raise UnexpectedAnswer(f"the router does not remove {worker.url}: {await _error_text(answer)}")


def parse_workers(body: Any) -> tuple[Worker, ...]:
    """Parse a router's list of workers. Raises one of the exceptions in `PARSE_ERRORS` for any other response."""
    return tuple(_parse_worker(item) for item in body["workers"])


def _parse_worker(body: dict[str, Any]) -> Worker:
    port = body.get("bootstrap_port")
    return Worker(
        id=str(body["id"]),
        url=str(body["url"]),
        worker_type=str(body["worker_type"]),
        bootstrap_port=None if port is None else int(port),
        running=int(body.get("load") or 0),
    )


async def _read_json(answer: aiohttp.ClientResponse) -> Any:
    try:
        return await answer.json(content_type=None)
    except (ValueError, RecursionError) as error:
        raise UnexpectedAnswer(f"the response of {answer.url.host} is not JSON") from error


async def _error_text(answer: aiohttp.ClientResponse) -> str:
    text = " ".join((await answer.text(errors="replace")).split())
    return f"{answer.status} {text[:200]}".strip()


def _read_text(file: Path) -> str:
    """Return the current contents of a small file without surrounding whitespace. The file is read each time, because the
    kubelet replaces the ServiceAccount's token while the process runs.
    """
    return file.read_text(encoding="utf-8").strip()
