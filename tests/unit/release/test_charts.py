"""Tests of the charts of a release: the images that they name, and how they are stored."""

import json
from pathlib import Path

import yaml

from release import charts, pages
from release.layout import Layout

ROOT = Path(__file__).parents[3]
DIGEST = f"sha256:{'1' * 64}"


def test_released_chart_names_every_image_by_digest() -> None:
    """The values of a released chart name the images of the operator and the agent by their digests. All comments of the
    committed values stay.
    """
    text = (ROOT / "charts/ome-resources/values.yaml").read_text()
    made = charts.values_with_digests(text, "1.2.3", {"operator": ("r/op", DIGEST), "agent": ("r/agent", DIGEST)})
    values = yaml.safe_load(made)
    assert values["image"] | {"pullPolicy": "", "pullSecrets": [], "userPullSecrets": []} == {
        "repository": "r/op", "tag": "1.2.3", "digest": DIGEST, "pullPolicy": "", "pullSecrets": [], "userPullSecrets": [],
    }  # fmt: skip
    assert values["agent"]["image"] == {"repository": "r/agent", "tag": "1.2.3", "digest": DIGEST}
    assert made.count("# --") == text.count("# --")


def test_chart_is_stored_in_the_helm_oci_layout(tmp_path: Path) -> None:
    """A chart is stored in the layout with the media types by which `helm install oci://…` recognizes a chart."""
    (tmp_path / "c.tgz").write_bytes(b"packed")
    layout = Layout.new(tmp_path / "oci")
    manifest = layout.document(charts.store(layout, ROOT, "ome-crd", "1.2.3", tmp_path / "c.tgz"))
    assert manifest["config"]["mediaType"] == "application/vnd.cncf.helm.config.v1+json"
    (content,) = manifest["layers"]
    assert content["mediaType"] == "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
    assert layout.blob(content["digest"]).read_bytes() == b"packed"
    facts = json.loads(layout.blob(manifest["config"]["digest"]).read_text())
    assert (facts["name"], facts["version"], facts["appVersion"]) == ("ome-crd", "1.2.3", "1.2.3")


def test_both_chart_lists_contain_every_chart() -> None:
    there = {path.parent.name for path in (ROOT / "charts").glob("*/Chart.yaml")}
    assert set(charts.CHARTS) == set(pages.CHARTS) == there
