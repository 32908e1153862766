"""Tests of GGUF checkpoints whose configuration and tokenizer are in the repository of the original model."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ome_operator.agent.download import DownloadFailed
from ome_operator.core.weights.mount import weights
from ome_operator.storage.listing import RequestRefused
from ome_operator.storage.sources import Access, open_source
from tests.agent.conftest import Node
from tests.agent.test_work import Here
from tests.support.hub import COMMIT, ORIGINALS, Answer, Hub, served

URI, ORIGINAL = "hf://org/model", "hf://org/original"
BOTH = f"{URI}+{ORIGINAL}"
CHECKPOINT = {"Q4_K_M/model-00001.gguf": b"weights" * 10_000, "README.md": b"of the checkpoint"}
CONFIG = json.dumps({"architectures": ["DeepseekV3ForCausalLM"]}).encode()
FILES = {"config.json": CONFIG, "tokenizer/vocab.txt": b"a\nb\n", "README.md": b"of the original"}
WEIGHTS = {"model-00001.safetensors": b"0" * 500, "old/pytorch_model.bin": b"1"}
INDEX = {"model.safetensors.index.json": b"{}"}


@pytest.fixture
def hub() -> Iterator[Hub]:
    with served(Hub(CHECKPOINT, {**FILES, **WEIGHTS, **INDEX})) as made:
        yield made


@pytest.fixture
def here(tmp_path: Path, hub: Hub) -> Here:
    return Here(tmp_path, hub)


def there(node: Node) -> dict[str, bytes]:
    root = node.store.root
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_files_of_the_second_repository_are_added_to_the_weights(node: Node) -> None:
    """All files except weights are taken from the other repository; a file that both have is taken from the checkpoint."""
    made = node.fetch(BOTH)
    assert there(node) == {**FILES, **INDEX, **CHECKPOINT}
    assert made.revision == f"{COMMIT}+{ORIGINALS}"
    assert {sent.name for sent in node.hub.sent} == {*FILES, *INDEX, *CHECKPOINT}, "weights of the original are not fetched"


def test_fetch_uses_pinned_revisions_of_both_sources(node: Node) -> None:
    node.fetch(BOTH, f"{COMMIT}+{ORIGINALS}")
    assert node.hub.listings == [COMMIT, ORIGINALS]
    with pytest.raises(DownloadFailed, match="the model org/original has no revision gone"):
        node.fetch(f"{BOTH}@gone")


def test_corrupted_bytes_of_either_source_are_never_published(node: Node) -> None:
    node.hub.fault = lambda number, name: Answer(wrong=number < 4)
    node.fetch(BOTH)
    assert there(node) == {**FILES, **INDEX, **CHECKPOINT}


def made(here: Here, other: str, uri: str = URI) -> Any:
    return here.model(uri, parameters={"filesFrom": other})


def test_report_of_a_model_with_a_second_source_contains_its_facts(here: Here) -> None:
    report = here.work(made(here, ORIGINAL)).report()
    assert (report.state, report.directories) == ("Ready", (weights(made(here, ORIGINAL)).digest,))
    assert report.facts["architecture"] == "DeepseekV3ForCausalLM", "the checkpoint alone does not state this"
    assert (here.root / "m" / "config.json").read_bytes() == CONFIG


def test_changed_second_source_uses_another_directory(here: Here, tmp_path: Path) -> None:
    first, second = (here.work(made(here, f"{ORIGINAL}{revision}")) for revision in ("", "@v1"))
    assert first.store.root != second.store.root and first.identity != second.identity
    assert there_in(second.store.root) == there_in(first.store.root)


def there_in(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


@pytest.mark.parametrize("other", ["s3://bucket/prefix", "local:///raid/k2", "hf://org"])
def test_invalid_files_from_is_reported_with_the_field(here: Here, other: str) -> None:
    report = here.work(made(here, other)).report()
    assert report.state == "Failed"
    assert report.message == (
        f"spec.storage.parameters.filesFrom {other} is not a repository of a model hub: write hf://organization/model[@revision]"
    )


def test_second_hub_is_not_requested_at_the_bucket_endpoint() -> None:
    """The parameter `endpoint` is the address of the bucket with the weights. The other files come from a hub, which is
    requested at its own endpoint and not at this one.
    """
    found = open_source(f"s3://bucket/prefix+{ORIGINAL}", Access({"endpoint": "http://bucket:1"}, {}, "http://hub:2"))
    assert "http://hub:2" in vars(vars(found)["_other"]).values()
    with pytest.raises(RequestRefused, match=r"filesFrom gs://b/x is not a repository of a model hub"):
        open_source("hf://org/model+gs://b/x", Access({}, {}))
