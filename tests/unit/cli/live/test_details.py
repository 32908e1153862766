"""Tests of what commands read from pods: the last lines of logs, and the traffic that routers report."""

from collections.abc import AsyncIterator
from functools import cache
from typing import Any

from ome_operator.cli.live import details as reading
from ome_operator.cli.live.board import ClusterState
from ome_operator.cli.live.details import details
from ome_operator.cli.live.traffic import TrafficSamples
from ome_operator.describe.actions import CommandBuilder
from ome_operator.describe.causes import causes
from ome_operator.kube.errors import Forbidden, KubeError, Transient
from ome_operator.kube.podlogs import LogLine, LogWindow
from tests.support import console, parts
from tests.support.bodies import Cluster
from tests.support.fake_api import FakeApi
from tests.support.heard import hear

KIMI = ("kimi-k2-instruct", "kimi-k2-instruct")
ILL = "kimi-k2-instruct-decoder-44924f87-0-w-7"


@cache
def shown() -> ClusterState:
    """Return the simulated cluster of tests/support/console.py, without the service whose texts contain escape sequences."""
    return console.fleet(hostile=False).seen()


async def told(answers: dict[bool, Any], **more: Any) -> Any:
    """Return the log of the rank that crashes. `answers` maps True to the log of the previous container, and False to the
    log of the present container.
    """

    async def read(_: str, pod: str, __: str, wanted: LogWindow) -> AsyncIterator[LogLine]:
        answer = answers[wanted.previous]
        if isinstance(answer, KubeError):
            raise answer
        for text in answer:
            yield LogLine("", text)

    found = causes(shown().trees[KIMI], shown().bodies[KIMI]["status"]["conditions"], CommandBuilder())
    pods = {name.partition("/")[2]: body for name, body in shown().pods.items()}
    api = FakeApi({"list_objects": Transient("no events")})
    got = await details(api, read, KIMI[0], set(), found, pods, more.get("simulated", ()))
    assert got.denied == "no events" and got.logs is not None
    (name,) = [name for name in got.logs if name.endswith("-w-7")]
    return got.logs[name]


async def test_last_log_lines_are_returned_without_colours() -> None:
    log = await told({False: ["\x1b[31mred\x1b[0m", "x" * 9999]})
    assert log.lines == ("red", "x" * reading.LONGEST) and log.said == ""


async def test_empty_log_falls_back_to_the_previous_container() -> None:
    assert (await told({False: [], True: ["former"]})).lines == ("former",)
    assert (await told({False: Transient("it waits"), True: ["former"]})).lines == ("former",)


async def test_unreadable_log_gives_the_reason() -> None:
    log = await told({False: Forbidden("cannot get pods/log", 403), True: Transient("previous not found")})
    assert log.lines == () and log.said == "cannot get pods/log"
    assert (await told({False: [], True: []})).said == "its log is empty"
    assert "is simulated" in (await told({}, simulated={"h200-07"})).said


async def sampled(cluster: Cluster, key: tuple[str, str]) -> TrafficSamples:
    board, found = cluster.seen(), TrafficSamples()
    await found.sample(cluster.page, board.bodies[key], board.trees[key], board.observed[key].pods, board.simulated)
    return found


async def test_traffic_is_read_from_router_reports() -> None:
    found = await sampled(hear(console.fleet(hostile=False)), ("chat", "gpt-oss-120b"))
    (row,) = found.samples
    assert (found.why, row.running, row.output_tokens_per_second) == ("", 21, 900)


async def test_sizes_are_sampled_without_router_reports() -> None:
    found = await sampled(console.fleet(hostile=False), ("chat", "gpt-oss-120b"))
    assert found.why and [one.ready for one in found.scaling] == [{"prefill": 3, "routers": 1}]


async def test_unmeasurable_traffic_gives_the_reason() -> None:
    cluster = console.fleet(hostile=False)
    assert "connection refused" in (await sampled(cluster, ("chat", "gpt-oss-120b"))).why
    for body in cluster.objects["Node"]:
        body["metadata"]["labels"] = {"type": "kwok"}
    assert "simulated" in (await sampled(cluster, ("chat", "gpt-oss-120b"))).why
    alone = Cluster()
    console.put(
        alone,
        console.grown(console.made((parts.service(engine={}), parts.deps(parts.simple(), parts.model())), "alone", "t")),
        iter(["n"] * 99),
    )
    assert "no router of this service is ready" in (await sampled(alone, ("t", "alone"))).why
