"""Package the charts of a release. The images in a chart are identified by digest, helm packs the chart, and the chart is
stored in the format of `helm push`.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml

from ome_local.binaries import ensure
from ome_operator.errors import UserError
from release.layout import Layout
from release.values import replace_values

CHARTS = ("ome-crd", "ome-resources")
"""Charts in the order in which users install them. The digest of the last chart represents the release."""
IMAGES = {"operator": ("image",), "agent": ("agent", "image")}
"""Folder of an image -> path of the image's value in values.yaml."""
_CONFIG = "application/vnd.cncf.helm.config.v1+json"
_CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def package(root: Path, name: str, version: str, images: Mapping[str, tuple[str, str]], out: Path) -> Path:
    """Package a chart into the folder `out`, and return the path of the file. `images` maps folders below images/ to
    (repository, digest).
    """
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(folder) / name
        shutil.copytree(root / "charts" / name, chart)
        values = chart / "values.yaml"
        if values.exists():
            values.write_text(values_with_digests(values.read_text(encoding="utf-8"), version, images), encoding="utf-8")
        words = ["package", str(chart), "--destination", str(out), "--version", version, "--app-version", version]
        home = {f"HELM_{part}_HOME": f"{folder}/helm/{part.lower()}" for part in ("CACHE", "CONFIG", "DATA")}
        helm = ensure.ensure(["helm"])["helm"]
        done = subprocess.run([str(helm), *words], capture_output=True, text=True, check=False, env={**os.environ, **home})
        if done.returncode:
            raise UserError(f"helm could not package charts/{name}: {done.stderr.strip()}")
    return out / f"{name}-{version}.tgz"


def values_with_digests(values: str, version: str, images: Mapping[str, tuple[str, str]]) -> str:
    """Return the text of values.yaml in which every image of the release is identified by its digest. The tag is only
    information for readers.
    """
    wanted = {}
    for image, (repository, digest) in images.items():
        for field, value in (("repository", repository), ("tag", version), ("digest", digest)):
            wanted[(*IMAGES[image], field)] = value
    return replace_values(values, wanted)


def store(layout: Layout, root: Path, name: str, version: str, packed: Path) -> str:
    """Store a packed chart as an OCI artifact, and return its digest."""
    facts = yaml.safe_load((root / "charts" / name / "Chart.yaml").read_text(encoding="utf-8"))
    facts |= {"version": version, "appVersion": version}
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": layout.put(json.dumps(facts).encode(), _CONFIG),
        "layers": [layout.put(packed.read_bytes(), _CONTENT)],
        "annotations": {
            "org.opencontainers.image.title": name,
            "org.opencontainers.image.version": version,
            "org.opencontainers.image.description": facts["description"],
        },
    }
    return layout.name(layout.put(json.dumps(manifest).encode(), _MANIFEST), f"{name}-{version}")
