"""Tests of Prometheus next to a cluster: the real program, with pages on loopback and an API server that only lists pods and
nodes.
"""

import json
import signal
import ssl
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest

from ome_local import creation, options, processes, prometheus, servers, targets
from ome_local.binaries import debian
from ome_local.binaries.releases import Unavailable
from ome_local.components import PORTS
from ome_local.layout import Layout
from ome_local.spec import ClusterFile, Spec
from ome_operator.errors import UserError
from release import alerts
from tests.support.prometheus import Prometheus, poll_until

ROOT = Path(__file__).parents[3]
LEADER = {"ome.io/managed-by": "ome-operator", "component": "engine", "leaderworkerset.sigs.k8s.io/worker-index": "0"}
ROUTER = {"ome.io/managed-by": "ome-operator", "component": "router"}
PAGE = 'ome_leader 1\nome_service_ready{namespace="a",service="b"} 1\nsglang_token_usage 1\n'
OPERATOR = {"app.kubernetes.io/name": "ome-operator"}


@pytest.fixture
def programs() -> dict[str, Path]:
    try:
        return debian.prometheus()
    except Unavailable as reason:
        pytest.skip(str(reason))


@contextmanager
def served(answer: Callable[[str], str], port: int = 0, tls: Path | None = None) -> Iterator[int]:
    """Serve these answers on loopback inside the `with` block, with the certificate in the folder `tls`, and yield the
    port.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = answer(self.path).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls / "server.crt", tls / "server.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def pod(name: str, labels: dict[str, str], port: int, node: str = "real-0", port_name: str = "http") -> dict[str, Any]:
    other = {"name": "other", "containerPort": 1}
    container = {"name": "ome-container", "ports": [{"name": port_name, "containerPort": port}, other]}
    return {
        "metadata": {"namespace": "team", "name": name, "uid": name, "labels": labels},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": "Running", "podIP": "127.0.0.1", "hostIP": "127.0.0.1"},
    }


def kubernetes(pods: list[dict[str, Any]]) -> Callable[[str], str]:
    """Return an API server's answers to the lists that service discovery requests."""

    def answer(path: str) -> str:
        asked = {name: values[0] for name, values in parse_qs(urlparse(path).query).items()}
        if urlparse(path).path.endswith("/nodes"):
            assert asked["labelSelector"] == "type!=kwok"
            return json.dumps({"items": [{"metadata": {"name": "real-0"}}]})
        assert asked["fieldSelector"] == "status.phase=Running"
        return json.dumps({"items": [each for each in pods if chosen(each, asked["labelSelector"])]})

    return answer


def chosen(pod: dict[str, Any], selector: str) -> bool:
    """Return whether a pod matches a label selector of the forms `a=b` and `a in (b,c)`."""
    labels = pod["metadata"]["labels"]
    for part in selector.replace("(engine,decoder)", "(engine|decoder)").split(","):
        name, _, values = part.partition(" in ") if " in " in part else part.partition("=")
        if labels.get(name) not in values.strip("()").split("|"):
            return False
    return True


@pytest.fixture
def made(tmp_path: Path) -> Iterator[tuple[Layout, ClusterFile]]:
    """Yield the folder of a cluster that has only Prometheus."""
    at = Layout(tmp_path / "mine")
    yield at, creation.create(at, Spec(prometheus=True))
    processes.end_all(at)


def test_prometheus_scrapes_operator_engines_and_routers_after_restart(
    programs: dict[str, Path], made: tuple[Layout, ClusterFile]
) -> None:
    """The series have the labels that the dashboards and alerts use, according to the rules of the chart. Simulated pods are
    not scraped.
    """
    at, kept = made
    with ExitStack() as stack:
        port = stack.enter_context(served(lambda path: PAGE if path == "/metrics" else "?"))
        pods = [
            pod("svc-engine-0", LEADER, port),
            pod("svc-engine-0-w-1", {**LEADER, "leaderworkerset.sigs.k8s.io/worker-index": "1"}, port),
            pod("sim-engine-0", LEADER, port, node="h200-00"),
            pod("svc-router-0", ROUTER, port, port_name="metrics"),
            pod("ome-operator-0", OPERATOR, port, port_name="metrics"),
        ]
        stack.enter_context(served(kubernetes(pods), kept.ports["apiserver"], at.pki))
        for name in prometheus.PROCESSES:
            servers.start(at, kept, name)
        (targets.folder(at) / "operator-mine.json").write_text(json.dumps([{"targets": [f"127.0.0.1:{port}"]}]))

        asked = Prometheus(prometheus.url(kept))
        found = poll_until("all answer", lambda: sum(map(len, asked.targets().values())) == 4 and asked.targets(), 30)
        assert found
        where = {
            job: sorted([each.get(name, "") for name in ("namespace", "pod", "container")] for each in each_of)
            for job, each_of in found.items()
        }
        assert where == {
            "operator": [["", "", ""], ["team", "ome-operator-0", "ome-container"]],
            "engines": [["team", "svc-engine-0", "ome-container"]],
            "routers": [["team", "svc-router-0", "ome-container"]],
        }
        assert asked.rules() == {alert["alert"] for alert in alerts.alerts()}
        with urllib.request.urlopen(f"{asked.url}/classic/alerts", timeout=10) as page:
            assert b"OmeNobodyLeads" in page.read(), "users see the pages of Debian's package"
        spaces = {each["metric"]["job"]: each["metric"]["namespace"] for each in asked.ask("ome_service_ready")}
        assert len(asked.ask("sglang:token_usage")) == 2, "the name that the dashboards use"
        assert spaces == {"operator": "a", "engines": "team", "routers": "team"}, "an engine cannot choose the namespace"
        assert asked.ask('ome_leader{job="operator"}'), "the scraped series can be queried"

        first = processes.find_process(at, prometheus.NAME)
        servers.start(at, kept, prometheus.NAME)
        assert first is not None and processes.find_process(at, prometheus.NAME) == first, "`up` again changes nothing"
        processes.stop_process(at, prometheus.NAME, signal.SIGKILL)
        servers.start(at, kept, prometheus.NAME)
        second = processes.find_process(at, prometheus.NAME)
        assert second is not None and second != first
        assert asked.ask("last_over_time(ome_leader[5m])"), "the stored data is kept"
        (at.prometheus / "prometheus.yaml").write_text("an earlier build's")
        servers.start(at, kept, prometheus.NAME)
        assert processes.find_process(at, prometheus.NAME) not in (None, second), "it reads its configuration when it starts"


def test_prometheus_configuration_is_accepted_by_promtool(
    programs: dict[str, Path], made: tuple[Layout, ClusterFile]
) -> None:
    at, kept = made
    assert prometheus.write(at, kept) and not prometheus.write(at, kept)
    command = [programs["promtool"], "check", "config", at.prometheus / "prometheus.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout + done.stderr
    assert f"{len(alerts.alerts())} rules found" in done.stdout


def test_prometheus_is_reachable_only_on_loopback(programs: dict[str, Path], made: tuple[Layout, ClusterFile]) -> None:
    """Prometheus listens on loopback, pages in a browser may not read it, and no request changes or stops it."""
    line = prometheus.command(*made)
    address = f"127.0.0.1:{made[1].ports['prometheus']}"
    assert {f"--web.listen-address={address}", f"--web.cors.origin=http://{address}"} <= set(line)
    assert not [word for word in line if word.startswith("--web.enable-")]


def test_scraped_pods_equal_those_of_the_chart_monitors() -> None:
    """Prometheus of a local cluster scrapes the pods and ports that the chart's PodMonitors select. The test compares with
    the text of the chart's template.
    """
    text = (ROOT / "charts/ome-resources/templates/metrics.yaml").read_text()
    assert 'matchLabels: {ome.io/managed-by: ome-operator, leaderworkerset.sigs.k8s.io/worker-index: "0"}' in text
    assert "{key: component, operator: In, values: [engine, decoder]}" in text
    assert "matchLabels: {ome.io/managed-by: ome-operator, component: router}" in text
    assert text.count("- port: http\n      path: /metrics\n") == 1 and text.count("{port: metrics, path: /metrics") == 1
    assert {job: port for job, (_, port) in targets.PODS.items()} == {
        "operator": "metrics", "engines": "http", "routers": "metrics"
    }  # fmt: skip


def test_option_with_accepts_only_known_programs() -> None:
    assert options.extras(["prometheus"]) == {"prometheus": True, "kueue": False, "keda": False}
    assert options.extras(()) == {"prometheus": False, "kueue": False, "keda": False}
    with pytest.raises(UserError, match=r"^--with grafana: there is no such program: use prometheus, kueue, keda\.$"):
        options.extras(["prometheus", "grafana"])


def test_prometheus_is_refused_for_a_cluster_of_an_earlier_version() -> None:
    kept = ClusterFile(Spec(), {name: 1 for name in PORTS if name != prometheus.NAME})
    with pytest.raises(UserError, match="--with prometheus: cluster mine was created by an earlier version"):
        options.check("mine", kept, Spec(prometheus=True))
    options.check("mine", kept, Spec())
    assert prometheus.url(ClusterFile(Spec(), {"prometheus": 1})) == ""
