"""Reads the summaries of routers' registries (docs/telemetry.md) through the API server, with the rights of the user."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Container, Iterable
from typing import NamedTuple

from ome_operator import keys
from ome_operator.core.observed.objects import Pod
from ome_operator.core.observed.telemetry import RouterReport, UnusableSummary, parse_report
from ome_operator.core.render import meta
from ome_operator.kube.errors import Forbidden, KubeError

ReadPage = Callable[[str, str, int, str], Awaitable[str]]
"""Function that returns the text of a page of a pod. Its arguments are namespace, pod, port and the path of the page."""
PATIENCE = 8.0
"""Maximum number of seconds that the requests to all routers may take together."""
AT_ONCE = 8
"""Maximum number of requests that are sent at the same time."""


class Summaries(NamedTuple):
    """The reports of routers, and the reasons for which other routers have no report."""

    reports: dict[str, RouterReport]
    """Maps the UID of a router's pod to the report of the router."""
    missing_reports: dict[str, str]
    """Maps the UID of the pod of each ready router without a report to the reason why there is no report."""


async def summaries(page: ReadPage, pods: Iterable[Pod], simulated: Container[str] = ()) -> Summaries:
    """Request the summaries of the ready routers among these pods. `simulated` contains the names of nodes on which no
    process runs.

    Never raises. In a namespace in which the user must not read pages of pods, no further summary is requested.
    """
    reports, troubles, forbidden = dict[str, RouterReport](), dict[str, str](), dict[str, str]()

    async def ask(pod: Pod) -> None:
        if pod.namespace in forbidden:
            troubles[pod.uid] = forbidden[pod.namespace]
            return
        try:
            text = await page(pod.namespace, pod.name, keys.REGISTRY_PORT, "summary")
            reports[pod.uid] = parse_report(text, meta.slice_mark(pod), time.time())
        except Forbidden as error:
            troubles[pod.uid] = forbidden[pod.namespace] = f"you have no right to `get pods/proxy`: {error}"
        except (KubeError, UnusableSummary) as error:
            troubles[pod.uid] = f"the summary of router {pod.name} cannot be used: {error}"

    routers = [pod for pod in pods if pod.component == keys.ROUTER and pod.ready and pod.node not in simulated]
    waiting = iter(routers)

    async def ask_next() -> None:
        for pod in waiting:  # the workers share the iterator
            await ask(pod)

    workers = [asyncio.create_task(ask_next()) for _ in range(min(AT_ONCE, len(routers)))]
    if workers:
        _, late = await asyncio.wait(workers, timeout=PATIENCE)
        for worker in late:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    for pod in routers:
        if pod.uid not in reports:
            troubles.setdefault(pod.uid, f"the routers did not answer within {PATIENCE:.0f} s")
    return Summaries(reports, troubles)
