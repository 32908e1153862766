"""Tests on the real node that every query of the dashboards returns data from a real Prometheus, next to a service whose
pods are real containers.

The queries are those of the files in the chart. One service works, and another one is in the states that some panels show.
"""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from ome_operator import keys
from tests.node.conftest import Steps
from tests.node.serving.conftest import DIRECT, ON_OUR_NODE, post
from tests.support import yamls
from tests.support.prometheus import Prometheus, joined, poll_until
from tests.support.rig import ROOT, Rig

pytestmark = [ON_OUR_NODE]
BOARDS = sorted((ROOT / "charts/ome-resources/files/dashboards").glob("*.json"))
NAMESPACE = SERVICE = "kimi-k2-tiny"
OTHERS = "panels"
"""The namespace of a service that is frozen and not Ready."""


class Query(NamedTuple):
    """A query of a panel."""

    board: str
    panel: str
    legend: str


VLLM, TENSORRT = "the demo has no vLLM", "the demo has no TensorRT-LLM"
SHORT = "the service has all its groups; tests/controlplane/alerts shows this difference for OmeServiceIncomplete"
EMPTY: Mapping[Query, str] = {
    **{
        Query("service", panel, "vLLM {{pod}}"): VLLM
        for panel in ("Time to first token (90 %)", "Inter-token latency (90 %)", "Whole request (90 %)")
    },
    Query("service", "Time to first token (90 %)", "TensorRT-LLM {{pod}}"): TENSORRT,
    Query("fleet", "Ready with fewer groups than desired", "{{namespace}}/{{service}}"): SHORT,
}
"""Query -> why it has no data in this test. A query that gets data has to be removed from this list."""


def queries() -> dict[Query, str]:
    """Return the queries as Grafana sends them for the service that works."""
    found: dict[Query, str] = {}
    for file in BOARDS:
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel.get("targets", ()):
                query = Query(file.stem, panel["title"], target["legendFormat"])
                assert query not in found
                found[query] = target["expr"].replace("$namespace", NAMESPACE).replace("$service", SERVICE)
    return found


def variables() -> dict[str, str]:
    """Return the name of each dashboard variable -> the selector of the series that have a label with this name."""
    found: dict[str, str] = {}
    for file in BOARDS:
        for each in json.loads(file.read_text())["templating"]["list"]:
            if each["type"] == "query":
                selector, _, label = each["query"].removeprefix("label_values(").removesuffix(")").rpartition(", ")
                assert label == each["name"]
                found[label] = selector.replace("$namespace", NAMESPACE)
    return found


@pytest.fixture(scope="module")
def asked(serving: Rig, tiny: str, steps: Steps) -> Iterator[Prometheus]:
    """Yield a Prometheus that has joined the cluster."""
    with ExitStack() as stack:
        with steps.measure("Prometheus joins the cluster"):
            made = stack.enter_context(joined(serving.cluster))
        yield made


@pytest.fixture(scope="module")
def states(serving: Rig) -> Iterator[None]:
    """Create a frozen service whose model does not exist, and delete it afterwards."""
    serving.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHERS}})
    body = yamls.service(OTHERS, "waits", "nobody-has-this", model="nobody-has-this")
    body["metadata"]["annotations"] = {keys.FREEZE: "true"}
    serving.create(body)
    yield
    serving.delete("InferenceService", OTHERS, "waits")
    serving.delete("Namespace", "", OTHERS)


def numbers(asked: Prometheus, query: str) -> list[float]:
    """Return the values of the series that are numbers. A panel shows nothing for a value such as NaN."""
    found = [float(each["value"][1]) for each in asked.ask(query)]
    return [each for each in found if each == each]


def stream(url: str, body: dict[str, Any]) -> None:
    """Send a streamed chat and read it to its end. Engines measure the time between tokens only for streams."""
    sent = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps({**body, "stream": True}).encode(), sent)
    with DIRECT.open(request, timeout=60) as answer:
        answer.read()


def test_every_dashboard_query_returns_data(serving: Rig, asked: Prometheus, states: None, tiny: str) -> None:
    every = queries()
    assert len({query.board for query in every}) == 3 and set(EMPTY) <= set(every)

    def empty() -> set[Query]:
        """Return the queries that have no result after further requests and reconciliations have been caused. Many panels
        show rates over the last minutes.
        """
        serving.patch("InferenceService", OTHERS, "waits", {"metadata": {"labels": {"at": str(int(time.time()))}}})
        for number in range(4):
            message = {"role": "user", "content": f"Request {number}: the future of AI is"}
            stream(f"{tiny}/v1/chat/completions", {"model": SERVICE, "messages": [message], "max_tokens": 24})
        return {query for query, text in every.items() if not numbers(asked, text)}

    without_data = set(every)

    def all_have_data() -> bool:
        nonlocal without_data
        without_data = empty()
        return without_data <= set(EMPTY)

    try:
        poll_until("every query has data", all_have_data, 180, 2.0)
    except AssertionError:
        pytest.fail(f"these have no data: {sorted(without_data - set(EMPTY))}")
    assert without_data == set(EMPTY), f"these have data now: {sorted(set(EMPTY) - without_data)}"


def test_dashboard_variables_have_values(asked: Prometheus, states: None) -> None:
    chosen = {label: {each["metric"].get(label) for each in asked.ask(text)} for label, text in variables().items()}
    assert chosen["namespace"] >= {NAMESPACE, OTHERS} and chosen["service"] == {SERVICE}


def test_engines_and_routers_are_scraped_and_no_simulated_pod(asked: Prometheus) -> None:
    def pods() -> dict[str, int]:
        return {job: len(found) for job, found in asked.targets().items()}

    poll_until("operator, prefill, decode and router", lambda: pods() == {"operator": 1, "engines": 2, "routers": 1}, 60)


def test_invalid_client_requests_fire_no_router_alert(asked: Prometheus, tiny: str) -> None:
    """Requests that are invalid do not make the alert OmeRouterErrors fire: it counts only answers with errors of the server
    (5xx).
    """
    answered = f'sum(smg_http_responses_total{{namespace="{NAMESPACE}",status_code=~"4.."}})'
    before = sum(numbers(asked, answered))
    with pytest.raises(urllib.error.HTTPError, match="HTTP Error 4"):
        post(f"{tiny}/generate", {"text": "x", "sampling_params": {"max_new_tokens": -5}})
    poll_until("it is counted as the client's", lambda: sum(numbers(asked, answered)) > before, 30)
