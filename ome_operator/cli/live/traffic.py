"""Samples the metrics of a service's engines through the API server while somebody looks at its page."""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Container, Mapping
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.describe import plots
from ome_operator.describe.tree import Tree
from ome_operator.kube.client import Manifest
from ome_operator.kube.errors import Forbidden, KubeError

ReadPage = Callable[[str, str, int, str], Awaitable[str]]
"""Returns the text of a page, from namespace, pod, port and page."""
MOST = 16
"""Maximum number of leaders that are sampled. A service with more gets no plots, because the sum over a part would be
wrong."""
PORT = 30000
"""Port of an engine that names no port."""


class LeaderPod(NamedTuple):
    """The leader pod of a ready group."""

    pod: str
    port: int
    counts: bool
    """Whether requests are counted at this leader: with disaggregation, only at decode."""


class TrafficSamples:
    """The newest samples of a service, or why there are none."""

    def __init__(self) -> None:
        self.samples: deque[plots.Sample] = deque(maxlen=plots.KEPT)
        self.why = "reading"

    async def sample(
        self, read: ReadPage, tree: Tree, pods: Mapping[str, Manifest], simulated: Container[str], at: float
    ) -> None:
        """Sample all leaders. Never raises: an error is put into `why`."""
        found = leaders(tree, pods)
        if not found:
            self.why = "no group is ready, so there are no metrics"
        elif len(found) > MOST:
            self.why = f"the service has {len(found)} groups, but this page samples at most {MOST}: use Prometheus"
        elif any((pods[leader.pod].get("spec") or {}).get("nodeName") in simulated for leader in found):
            self.why = "the nodes of the service are simulated, so no engine runs there"
        else:
            await self._ask(read, tree.namespace, found, at)

    async def _ask(self, read: ReadPage, namespace: str, found: list[LeaderPod], at: float) -> None:
        async def page(leader: LeaderPod) -> dict[str, float] | KubeError:
            try:
                return plots.read_metrics(await read(namespace, leader.pod, leader.port, "metrics"))
            except KubeError as error:
                return error

        answers = dict(zip((leader.pod for leader in found), await asyncio.gather(*map(page, found)), strict=True))
        pages = {pod: answer for pod, answer in answers.items() if not isinstance(answer, KubeError) and answer}
        errors = [answer for answer in answers.values() if isinstance(answer, KubeError)]
        if denied := next((error for error in errors if isinstance(error, Forbidden)), None):
            self.why = f"you have no permission to read the metrics of pods: {denied}"
        elif not pages:
            self.why = str(errors[0]) if errors else "the engines export no metrics of SGLang or vLLM"
            self.why += ". SGLang exports metrics if its arguments contain --enable-metrics"
        else:
            self.why = ""
            self.samples.append(plots.summed(at, pages, (leader.pod for leader in found if leader.counts)))


def leaders(tree: Tree, pods: Mapping[str, Manifest]) -> list[LeaderPod]:
    """Return the leaders of all ready groups, of every revision."""
    found = []
    for part in tree.slices:
        apart = any(role.component == keys.DECODER for role in part.roles)
        for role in part.roles:
            if role.component == keys.ROUTER:
                continue
            for group in role.groups:
                if group.ready and group.ranks[0].pod in pods:
                    pod = group.ranks[0].pod
                    found.append(LeaderPod(pod, port(pods[pod]), not apart or role.component == keys.DECODER))
    return found


def port(pod: Mapping[str, Any]) -> int:
    """Return the port of the main container: its argument --port, or its first container port, or PORT."""
    box = (((pod.get("spec") or {}).get("containers")) or [{}])[0]
    words = " ".join(map(str, (*(box.get("command") or ()), *(box.get("args") or ()))))
    if named := re.search(r"(?:^|\s)--port[= ](\d{1,5})(?!\S)", words):
        return int(named[1])
    return int(((box.get("ports") or [{}])[0]).get("containerPort") or PORT)
