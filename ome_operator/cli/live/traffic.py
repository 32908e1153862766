"""Metrics of a service's engines, sampled through the API server while somebody looks at its page."""

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
"""Namespace, pod, port and page → its text."""
MOST = 16
"""Leaders that are asked; of a service with more there are no plots, for a part of them would be a wrong figure."""
PORT = 30000
"""Where an engine listens that says no port."""


class Leader(NamedTuple):
    """A leader of a group that is ready."""

    pod: str
    port: int
    counts: bool
    """Whether requests are counted there: at decode, where prefill and decode are apart."""


class TrafficSamples:
    """The last samples of a service, or why there are none."""

    def __init__(self) -> None:
        self.samples: deque[plots.Sample] = deque(maxlen=plots.KEPT)
        self.why = "reading"

    async def sample(
        self, read: ReadPage, tree: Tree, pods: Mapping[str, Manifest], simulated: Container[str], at: float
    ) -> None:
        """Ask all leaders. Never raises: what cannot be read is said."""
        found = leaders(tree, pods)
        if not found:
            self.why = "no group is ready, so there is nothing to measure"
        elif len(found) > MOST:
            self.why = f"it has {len(found)} groups: more than {MOST} are left to Prometheus"
        elif any((pods[leader.pod].get("spec") or {}).get("nodeName") in simulated for leader in found):
            self.why = "its nodes are simulated: no engine runs there"
        else:
            await self._ask(read, tree.namespace, found, at)

    async def _ask(self, read: ReadPage, namespace: str, found: list[Leader], at: float) -> None:
        async def page(leader: Leader) -> dict[str, float] | KubeError:
            try:
                return plots.read(await read(namespace, leader.pod, leader.port, "metrics"))
            except KubeError as error:
                return error

        answers = dict(zip((leader.pod for leader in found), await asyncio.gather(*map(page, found)), strict=True))
        pages = {pod: answer for pod, answer in answers.items() if not isinstance(answer, KubeError) and answer}
        errors = [answer for answer in answers.values() if isinstance(answer, KubeError)]
        if denied := next((error for error in errors if isinstance(error, Forbidden)), None):
            self.why = f"your rights do not reach pods' metrics: {denied}"
        elif not pages:
            self.why = str(errors[0]) if errors else "its engines show no metrics of SGLang or vLLM"
            self.why += ". SGLang shows them with --enable-metrics in its runtime"
        else:
            self.why = ""
            self.samples.append(plots.summed(at, pages, (leader.pod for leader in found if leader.counts)))


def leaders(tree: Tree, pods: Mapping[str, Manifest]) -> list[Leader]:
    """The leaders of the groups that are ready, of every revision."""
    found = []
    for part in tree.slices:
        apart = any(role.component == keys.DECODER for role in part.roles)
        for role in part.roles:
            if role.component == keys.ROUTER:
                continue
            for group in role.groups:
                if group.ready and group.ranks[0].pod in pods:
                    pod = group.ranks[0].pod
                    found.append(Leader(pod, port(pods[pod]), not apart or role.component == keys.DECODER))
    return found


def port(pod: Mapping[str, Any]) -> int:
    """Where the main container answers: what its arguments say, else its first port, else the usual."""
    box = (((pod.get("spec") or {}).get("containers")) or [{}])[0]
    words = " ".join(map(str, (*(box.get("command") or ()), *(box.get("args") or ()))))
    if named := re.search(r"(?:^|\s)--port[= ](\d{1,5})(?!\S)", words):
        return int(named[1])
    return int(((box.get("ports") or [{}])[0]).get("containerPort") or PORT)
