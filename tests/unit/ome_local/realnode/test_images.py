"""Tests of importing image archives into the containerd of a node. No node is needed, because the tests supply the
answers of `ctr`.
"""

from pathlib import Path

import pytest

from ome_local import layout
from ome_local.realnode import images
from ome_local.realnode.spec import Network, RealNode
from ome_operator.errors import UserError

LINE = "unpacking docker.io/library/ome:1 (sha256:" + "a" * 64 + ")...done\n"
GONE = 'ctr: failed to prepare extraction snapshot "x": parent snapshot sha256:dc20 does not exist: not found'


@pytest.fixture
def node(tmp_path: Path) -> RealNode:
    return RealNode(layout.Layout(tmp_path / "mine"), Network(3))


@pytest.mark.parametrize(("failures", "said"), [([GONE], ""), ([GONE, GONE], GONE), (["no space left"], "no space left")])
def test_layer_removed_with_a_former_image_is_unpacked_again(
    node: RealNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: list[str], said: str
) -> None:
    """A layer that was removed together with a former image is unpacked again. The archive took over the name of the only
    image that had the layer, so containerd removed the layer while the import still needed it.
    """
    asked: list[str] = []
    left = list(failures)

    def ctr(node: RealNode, *words: str) -> str:
        asked.append(" ".join(words[:2]))
        if words[:2] != ("images", "import"):
            return ""
        if left:
            raise UserError(left.pop(0))
        return LINE

    monkeypatch.setattr(images, "_ctr", ctr)
    node.images.mkdir(parents=True)
    archive = tmp_path / "operator.tar"
    archive.write_bytes(b"x")
    if said:
        with pytest.raises(UserError, match=said.split(":")[0]):
            images.load(node, archive)
        assert images.loaded_records(node.images) == []
    else:
        images.load(node, archive)
        assert len(images.loaded_records(node.images)) == 1
        first, *between, last = [item for item in asked if item != "images list"]
        assert first == last == "images import" and between == ["leases create", "leases delete"]


def test_file_that_is_no_image_archive_is_named(node: RealNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ctr(node: RealNode, *words: str) -> str:
        raise UserError("`ctr images import` failed: ctr: unexpected EOF")

    monkeypatch.setattr(images, "_ctr", ctr)
    (file := tmp_path / "model.yaml").write_text("kind: ClusterBaseModel\n")
    with pytest.raises(
        UserError, match=r"model\.yaml is not a complete archive of images .*: name a file that `docker save`"
    ):
        images.load(node, file)
