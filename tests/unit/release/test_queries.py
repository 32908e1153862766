"""Tests of the dashboards' queries in a real Prometheus that scrapes an operator's page with every metric."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from release import dashboards
from tests.support.metrics import everything
from tests.support.prometheus import Prometheus, poll_until, running


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Yield a Prometheus that has scraped the page twice."""
    rig = everything()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(rig.text().encode())

        def log_message(self, format: str, *args: object) -> None: ...

    with running(tmp_path_factory.mktemp("prometheus")) as (made, _, kept):
        server = ThreadingHTTPServer(("127.0.0.1", kept.ports["operator-metrics"]), Page)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        poll_until("it has scraped", lambda: made.ask("count_over_time(ome_leader[1m]) > 1"))
        yield made
        server.shutdown()
        server.server_close()


def test_prometheus_accepts_every_dashboard_query(asked: Prometheus) -> None:
    for _, _, query in dashboards.queries():
        asked.ask(query.replace("$namespace", "team").replace("$service", "svc"))


def test_every_operator_metric_query_returns_series(asked: Prometheus) -> None:
    def empty() -> set[str]:
        return {
            f"{board}: {panel['title']}: {legend}"
            for board, each in dashboards.data().items()
            for panels in each["rows"].values()
            for panel in panels
            for legend, query in panel["queries"].items()
            if "of" not in panel and not asked.ask(query.replace("$namespace", "team").replace("$service", "svc"))
        }

    poll_until("every query has series", lambda: not empty())
