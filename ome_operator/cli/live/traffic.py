"""Samples the metrics that the routers of a service report while somebody looks at its page."""

import time
from collections import deque
from collections.abc import Container, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from ome_operator import keys
from ome_operator.cli.live.summaries import ReadPage, summaries
from ome_operator.core.observed.objects import Pod
from ome_operator.core.observed.traffic import traffic
from ome_operator.describe import plots
from ome_operator.describe.scaling import ScalingView, view
from ome_operator.describe.top import ServiceWithNumbers, TopRow, live_row
from ome_operator.describe.tree import Tree


class TrafficSamples:
    """The newest samples of a service, or the reason why there are none."""

    def __init__(self) -> None:
        self.samples: deque[TopRow] = deque(maxlen=plots.KEPT)
        self.scaling: deque[ScalingView] = deque(maxlen=plots.KEPT)
        """The newest samples of the scaling of the service. They are read from the service's status, without a router."""
        self.why = "reading"

    async def sample(
        self, read: ReadPage, body: Mapping[str, Any], tree: Tree, pods: Iterable[Pod], simulated: Container[str]
    ) -> None:
        """Request the summaries of all routers among the pods of the service, whose object is `body`. Never raises: an error
        is stored in `why`.
        """
        self.scaling.append(view(body, {}))
        pods = tuple(pods)
        routers = [pod for pod in pods if pod.component == keys.ROUTER and pod.ready]
        if not routers:
            self.why = "no router of this service is ready, and only routers report requests"
            return
        if all(pod.node in simulated for pod in routers):
            self.why = "the nodes of the routers are simulated, so no router runs there"
            return
        summarized = await summaries(read, pods, simulated)
        row = live_row(ServiceWithNumbers({}, tree, pods, traffic(summarized.reports, pods, time.time())), datetime.now(UTC))
        if row is not None:
            self.why = ""
            self.samples.append(row)
        else:
            self.why = next(iter(summarized.missing_reports.values()), "the routers know nothing about requests yet")
