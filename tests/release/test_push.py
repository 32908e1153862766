"""Tests of pushing a release to a real registry with TLS: afterwards, either all parts of the release have their names,
or none has.
"""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from ome_local.binaries import ensure
from ome_operator.errors import UserError
from release import charts
from release.layout import Layout
from release.push import Item, push
from tests.support import oci
from tests.support.tls_registry import Front

ROOT = Path(__file__).parents[2]
REPOSITORIES = ("us/ome-operator", "us/charts/ome-crd")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout.new(tmp_path / "layout")


def release(layout: Layout, tmp_path: Path, content: bytes = b"1") -> list[Item]:
    """Write a release with an image for two platforms and the chart of CRDs."""
    made = [oci.image(tmp_path / f"{arch}-{content.hex()}", {"a": content}, arch) for arch in ("amd64", "arm64")]
    items = [Item("ome-operator", layout.join(made, f"ome-operator-{content.hex()}"))]
    packed = charts.package(ROOT, "ome-crd", "0.1.0", {}, tmp_path)
    return [*items, Item("charts/ome-crd", charts.store(layout, ROOT, "ome-crd", "0.1.0", packed))]


def tags(front: Front) -> dict[str, list[str]]:
    return {name: found for name in REPOSITORIES if (found := front.tags(name))}


def test_push_uploads_all_artifacts_and_helm_can_pull_the_chart(front: Front, layout: Layout, tmp_path: Path) -> None:
    """A push uploads the images and the charts, and helm pulls the chart by `oci://` with the certificate in SSL_CERT_FILE
    alone. The same push a second time changes nothing.
    """
    items = release(layout, tmp_path)
    push(items, layout.folder, f"{front.host}/us", "0.1.0")
    assert tags(front) == {name: ["0.1.0"] for name in REPOSITORIES}
    helm = [str(ensure.ensure(["helm"])["helm"]), "template", "ome-crd", f"oci://{front.host}/us/charts/ome-crd"]
    done = subprocess.run(
        helm, capture_output=True, text=True, check=False, env={**os.environ, "HELM_CACHE_HOME": str(tmp_path)}
    )
    assert done.returncode == 0, done.stderr
    kinds = {body["kind"] for body in yaml.safe_load_all(done.stdout) if body}
    assert kinds == {"CustomResourceDefinition"}
    push(items, layout.folder, f"{front.host}/us", "0.1.0")


@pytest.mark.parametrize("refused", ["charts/ome-crd", "ome-operator"])
def test_refused_content_leaves_no_repository_tagged(front: Front, layout: Layout, tmp_path: Path, refused: str) -> None:
    """The registry refuses the content of one repository, for which the user has no rights. No repository gets a name,
    and the message names the repository that was refused.
    """
    front.refuse = lambda method, path: 403 if method in ("POST", "PUT") and f"/us/{refused}/" in path else 0
    with pytest.raises(
        UserError, match=rf"us/{refused} was refused, and nothing has a name yet: .*denied: not yours\.$"
    ) as said:
        push(release(layout, tmp_path), layout.folder, f"{front.host}/us", "0.1.0")
    assert "\n" not in str(said.value)
    assert tags(front) == {}


def test_refused_tag_removes_the_tags_pushed_before(front: Front, layout: Layout, tmp_path: Path) -> None:
    """The registry refuses a name after it has accepted other names. These names are removed again, so that no part of
    the release has a name, and the same command completes the release later.
    """
    front.refuse = lambda method, path: 403 if method == "PUT" and path.endswith("us/charts/ome-crd/manifests/0.1.0") else 0
    items = release(layout, tmp_path)
    with pytest.raises(UserError, match=r"charts/ome-crd:0\.1\.0 could not be named: .* No name is left of this release"):
        push(items, layout.folder, f"{front.host}/us", "0.1.0")
    assert tags(front) == {}
    front.refuse = lambda method, path: 0
    push(items, layout.folder, f"{front.host}/us", "0.1.0")
    assert tags(front) == {name: ["0.1.0"] for name in REPOSITORIES}


def test_tag_that_cannot_be_removed_is_reported(front: Front, layout: Layout, tmp_path: Path) -> None:
    """The registry refuses a name, and also the deletion of the names that were pushed before. The message says which name
    remains.
    """
    closed = ("DELETE",)
    front.refuse = lambda method, path: (
        405 if method in closed else 403 if method == "PUT" and path.endswith("us/charts/ome-crd/manifests/0.1.0") else 0
    )
    with pytest.raises(UserError, match=r"ome-operator kept the name 0\.1\.0, and no chart refers to them by it"):
        push(release(layout, tmp_path), layout.folder, f"{front.host}/us", "0.1.0")
    assert tags(front) == {"us/ome-operator": ["0.1.0"]}


def test_push_over_release_with_other_content_is_refused(front: Front, layout: Layout, tmp_path: Path) -> None:
    """A release exists already with other content. The push is refused before anything is sent."""
    push(release(layout, tmp_path), layout.folder, f"{front.host}/us", "0.1.0")
    (tmp_path / "b").mkdir()
    with pytest.raises(UserError, match=r"ome-operator:0\.1\.0 exists with other content .* take a newer VERSION"):
        push(release(layout, tmp_path / "b", b"2"), layout.folder, f"{front.host}/us", "0.1.0")
    assert tags(front) == {name: ["0.1.0"] for name in REPOSITORIES}
