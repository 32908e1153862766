"""Tests of the address, the path and the size of a model as users write them: they are parsed, or rejected with the fix."""

import time
from typing import Any

import pytest

from ome_operator.api import Invalid, Model, source_hints
from ome_operator.core.selection import model_profile


@pytest.mark.parametrize(
    "uri",
    [
        "hf://moonshotai/Kimi-K2-Instruct",
        "hf://org/model@v1.0",
        "s3://bucket@eu-central-1/prefix",
        "gs://bucket/prefix",
        "az://account/container/prefix",
        "oci://n/ns/b/bucket/o/path",
        "pvc://claim/sub",
        "pvc://ns:claim/sub",
        "local:///models/x",
        "vendor://nvidia/models/x",
        "github://org/repo",
    ],
)
def test_known_storage_uri_schemes_are_accepted(uri: str) -> None:
    """Every storageUri scheme of OME is accepted."""
    assert not isinstance(Model.parse({"metadata": {"name": "a"}, "spec": {"storage": {"storageUri": uri}}}), Invalid)


@pytest.mark.parametrize(
    "uri",
    [
        "ftp://x", "hf:/x", "hf://", "s3://", "https://github.com/a/b", "git@github.com:a/b", "https://huggingface.co/a",
        "https://huggingface.co/datasets/a/b", "huggingface://a", "file://a", "model", "//a/b",
    ],
)  # fmt: skip
def test_unknown_storage_uri_schemes_are_refused(uri: str) -> None:
    """A storageUri without a known scheme is refused, and the message lists the schemes that exist."""
    one = Model.parse({"metadata": {"name": "a"}, "spec": {"storage": {"storageUri": uri}}})
    assert isinstance(one, Invalid)
    assert one.why.startswith("spec.storage.storageUri is refused: start it with one of hf://, s3://")


def test_long_uri_is_parsed_quickly() -> None:
    before = time.perf_counter()
    assert source_hints.meant(f"hf.co/a/b/tree/{'x' * 20_000} ") == ""
    assert time.perf_counter() - before < 1


@pytest.mark.parametrize(
    ("uri", "meant"),
    [
        ("https://huggingface.co/Qwen/Qwen3-30B-A3B", "hf://Qwen/Qwen3-30B-A3B"),
        ("https://huggingface.co/a/b/", "hf://a/b"),
        ("https://huggingface.co/a/b/tree/main", "hf://a/b"),
        ("https://huggingface.co/a/b/blob/v1.0/config.json?x=1", "hf://a/b@v1.0"),
        ("hf.co/a/b", "hf://a/b"),
        ("huggingface://a/b", "hf://a/b"),
        ("HF://a/b", "hf://a/b"),
        ("Qwen/Qwen3-30B-A3B@v1", "hf://Qwen/Qwen3-30B-A3B@v1"),
        ("/raid/models/a", "local:///raid/models/a"),
        ("file:///raid/models/a", "local:///raid/models/a"),
        ("gcs://bucket/a", "gs://bucket/a"),
        ("S3://bucket/a", "s3://bucket/a"),
        ("abfs://models@account.dfs.core.windows.net/a", "az://models/a"),
        ("docker://registry.example.com/a/b:1", "oci://registry.example.com/a/b:1"),
    ],
)
def test_address_of_another_form_is_refused_with_the_right_uri(uri: str, meant: str) -> None:
    """An address that is not written as a URI of OME is refused, and the message proposes the right URI. The proposed URI
    is accepted itself.
    """
    one = Model.parse({"metadata": {"name": "a"}, "spec": {"storage": {"storageUri": uri}}})
    assert isinstance(one, Invalid) and one.why == f"spec.storage.storageUri is refused: write {meant}"
    test_known_storage_uri_schemes_are_accepted(meant)


PATHS = {
    "/": "below the root",
    "//./": "below the root",
    "/..": "below the root",
    "raid/x": "absolute path",
    "": "absolute path",
    "/raid/../etc": 'without ".."',
    "/raid/..": 'without ".."',
}
HUBS = ("hf://kimi", "hf://moonshotai /Kimi K2", "hf://moonshotai/Kimi K2", "hf://a/b/c", "hf://a/b@", "hf://a/b@x y")
SIZES = ("1,03T", "1TB", "seven", "7B-chat", ".5B", "-1B")


def kept(**spec: Any) -> Any:
    """Return the result of parsing a model with this spec."""
    storage = {"storageUri": "hf://a/b", **spec.pop("storage", {})}
    return Model.parse({"metadata": {"name": "a"}, "spec": {"storage": storage, **spec}})


@pytest.mark.parametrize("path", PATHS)
def test_unmountable_model_paths_are_refused(path: str) -> None:
    """Paths of weights that no pod can mount, or should not, are refused. The path `/` would give pods access to all files
    of the node. Relative paths and paths with `..` would only be refused when pods are created, by a message about pods.
    """
    refused = kept(storage={"path": path})
    assert isinstance(refused, Invalid)
    assert refused.why.startswith("spec.storage.path is refused: write a directory below the root")
    assert PATHS[path] in refused.why


@pytest.mark.parametrize("path", ["/raid/models/kimi-k2", "/raid/tiny/", "/mnt/a..b", "/.cache/x", "/mnt/models/..a"])
def test_mountable_model_paths_are_accepted(path: str) -> None:
    assert not isinstance(kept(storage={"path": path}), Invalid)


@pytest.mark.parametrize("uri", HUBS)
def test_hub_model_needs_an_owner_and_a_name(uri: str) -> None:
    refused = kept(storage={"storageUri": uri})
    assert isinstance(refused, Invalid) and "write hf://owner/name or hf://owner/name@revision" in refused.why


@pytest.mark.parametrize("size", SIZES)
def test_invalid_parameter_size_is_refused(size: str) -> None:
    refused = kept(modelParameterSize=size)
    assert isinstance(refused, Invalid) and 'for example "7B" or "1.04T"' in refused.why
    assert model_profile.parameter_count(size) is None, "the field would be ignored without a message"


@pytest.mark.parametrize("size", ["7B", "1.04T", "335M", "500m", "12", "7 B"])
def test_model_parameter_size_accepts_numbers_with_units(size: str) -> None:
    assert not isinstance(kept(modelParameterSize=size), Invalid) and model_profile.parameter_count(size)
