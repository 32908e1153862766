"""The Prometheus of a local cluster: its targets, its alert rules, and its command line.

Prometheus scrapes an operator on this machine at the operator's port, and pods of real nodes at the pods' own addresses
(ome_local/targets.py). With kind, Prometheus reaches no pod unless this machine has routes to the pods.
"""

from pathlib import Path
from typing import Any

from ome_local import targets
from ome_local.binaries import debian
from ome_local.kubeconfig import write_atomically
from ome_local.layout import Layout
from ome_local.spec import ClusterFile
from ome_operator.util.checkout import shipped_folder

NAME = "prometheus"
"""Name of Prometheus' process, of its port, and of its user at the API server."""
PROCESSES = (NAME, targets.NAME)
EVERY = "5s"
"""Scrape interval. It is also the longest time that a user waits for new data."""
_COLON = {
    "source_labels": ["__name__"], "regex": "(sglang|vllm)_(.+)", "target_label": "__name__", "replacement": "${1}:${2}",
}  # fmt: skip
"""Relabelling that restores metric names with a colon: to a Prometheus before 3.0, a newer prometheus_client exposes
`sglang:…` as `sglang_…`. The chart's PodMonitor has the same relabelling."""
RULES = Path("ome-resources/files/alerts.yaml")
"""Path of the alert rules relative to the folder of the charts. The chart's PrometheusRule contains the same rules."""


def url(cluster_file: ClusterFile) -> str:
    """Return the URL of the cluster's Prometheus; "" if the cluster has no Prometheus."""
    return f"http://127.0.0.1:{cluster_file.ports[NAME]}" if cluster_file.spec.prometheus else ""


def write(at: Layout, cluster_file: ClusterFile, rules: Path | None = None, every: str = EVERY) -> bool:
    """Write the configuration with the alert rules in the file `rules`, by default the chart's rules. `every` is the
    scrape interval. Return whether the configuration has changed.
    """
    import yaml  # imported here, so that `ome local kubectl` starts fast

    targets.folder(at).mkdir(parents=True, exist_ok=True, mode=0o700)
    text, file = (
        yaml.safe_dump(config(at, cluster_file, rules or shipped_folder("charts") / RULES, every), sort_keys=False),
        _config(at),
    )
    if file.exists() and file.read_text() == text:
        return False
    write_atomically(file, text)
    return True


def config(at: Layout, cluster_file: ClusterFile, rules: Path, every: str) -> dict[str, Any]:
    """Return the configuration of scraping and rules. The name of the job of a pod is not in the configuration, because the
    target files contain it.

    The operator's series about services have a label `namespace` with the namespace of the service, which must not be
    replaced by the namespace of the operator's pod.
    """
    beside = {"targets": [f"127.0.0.1:{cluster_file.ports['operator-metrics']}"]}

    def of(names: str) -> list[dict[str, Any]]:
        return [{"files": [str(targets.folder(at) / names)]}]

    operator = {"job_name": "operator", "static_configs": [beside], "file_sd_configs": of(f"{targets.OPERATOR}*.json")}
    pods = {"job_name": "pods", "file_sd_configs": of("pods*.json"), "metric_relabel_configs": [_COLON]}
    return {
        "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
        "rule_files": [str(rules)],
        "scrape_configs": [{**operator, "honor_labels": True}, pods],
    }


def command(at: Layout, cluster_file: ClusterFile) -> list[str]:
    """Return the command line. Prometheus listens on loopback, and does not permit other web sites in a browser to read
    its data.
    """
    address = f"127.0.0.1:{cluster_file.ports[NAME]}"
    programs = debian.prometheus()
    pages = [f"--web.local-assets={programs[debian.PAGES]}"] if debian.PAGES in programs else []
    return [
        str(programs[NAME]),
        f"--config.file={_config(at)}",
        f"--storage.tsdb.path={at.prometheus / 'data'}",
        "--storage.tsdb.retention.time=1d",
        "--storage.tsdb.retention.size=512MB",
        f"--web.listen-address={address}",
        f"--web.cors.origin=http://{address}",
        *pages,
        "--log.level=warn",
    ]


def identity(at: Layout, cluster_file: ClusterFile) -> Path:
    """Return the kubeconfig with which the process of `targets.py` finds Prometheus' targets."""
    return at.kubeconfig if cluster_file.spec.kind else at.component_kubeconfig(NAME)


def _config(at: Layout) -> Path:
    return at.prometheus / "prometheus.yaml"
