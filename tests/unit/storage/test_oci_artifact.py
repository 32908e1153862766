"""Tests of what an oci:// URI refers to, and of the contents of a manifest."""

import base64
from typing import Any

import pytest

from ome_operator.storage.listing import RequestRefused
from ome_operator.storage.oci_artifact import artifact_files, parse_reference, registry_credentials

SHA = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("rest", "found"),
    [
        ("ghcr.io/org/model:v1", ("ghcr.io", "org/model", "v1")),
        ("registry:5000/model", ("registry:5000", "model", "latest")),
        ("localhost/model", ("localhost", "model", "latest")),
        (f"ghcr.io/org/model:v1@{SHA}", ("ghcr.io", "org/model", SHA)),
        ("[::1]:5000/model:1", ("[::1]:5000", "model", "1")),
        ("n/space/b/bucket/o/path", None),
        ("n/space/b/bucket.with.dots:8/o/path", None),
        ("registry/model:1", None),
        ("ghcr.io/Model:1", None),
        ("ghcr.io/model:1@sha256:12", None),
        ("ghcr.io/../model", None),
        ("ghcr.io/", None),
    ],
)
def test_registry_is_distinguished_from_object_storage_by_its_host(rest: str, found: tuple[str, str, str] | None) -> None:
    assert parse_reference(rest) == found


def test_docker_hub_uses_its_own_registry_host() -> None:
    assert [one.address for rest in ("docker.io/org/m", "ghcr.io/org/m") if (one := parse_reference(rest))] == [
        "https://registry-1.docker.io",
        "https://ghcr.io",
    ]


def layer(kind: str, name: str = "", **more: Any) -> dict[str, Any]:
    """Return a layer as in a manifest."""
    notes = {"org.opencontainers.image.title": name} if name else {}
    return {"mediaType": kind, "digest": SHA, "size": 5, "annotations": notes, **more}


@pytest.mark.parametrize(
    ("kind", "name", "unpack"),
    [
        ("application/vnd.oci.image.layer.v1.tar", "model.safetensors", False),
        ("application/vnd.oci.image.layer.v1.tar+gzip", "model", True),
        ("application/vnd.cncf.model.weight.v1.raw", "model.safetensors", False),
        ("application/vnd.cncf.model.weight.v1.tar", "", True),
        ("application/vnd.kitops.modelkit.model.v1.tar+gzip", "", True),
        ("application/vnd.kitops.modelkit.modelpart.v1.tar", "", True),
        ("application/vnd.docker.ai.vllm.config.tar", "vllm-config.tar", True),
        ("application/vnd.docker.ai.dir.tar", "tokenizer", True),
        ("application/vnd.docker.ai.safetensors", "model.safetensors", False),
        ("application/vnd.docker.image.rootfs.diff.tar", "model.safetensors", False),
        ("application/x-tar", "data.tar", False),
    ],
)
def test_archive_layers_are_recognized_by_media_type(kind: str, name: str, unpack: bool) -> None:
    (one,) = artifact_files({"layers": [layer(kind, name)]})
    assert (one.unpack, one.size, str(one.hash)) == (unpack, 5, SHA)


def test_modelpack_file_names_come_from_its_annotation() -> None:
    notes = {"org.cncf.model.filepath": "sub/model.safetensors"}
    (one,) = artifact_files({"layers": [layer("application/vnd.cncf.model.weight.v1.raw", annotations=notes)]})
    assert one.name == "sub/model.safetensors"


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ({"mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []}, "by its digest"),
        ({}, "not an artifact"),
        ({"layers": [layer("application/vnd.oci.image.layer.v1.tar+gzip")]}, "not a container image"),
        ({"layers": [layer("application/vnd.cncf.model.weight.v1.tar+zstd")]}, "zstd"),
        ({"layers": [layer("x", "name", digest="md5:1")]}, "SHA-256"),
        ({"layers": [layer("x", "name", size=None)]}, "invalid layer"),
        ({"layers": ["x"]}, "invalid layer"),
        (
            {
                "config": {"mediaType": "application/vnd.oci.image.config.v1+json"},
                "layers": [layer("application/vnd.oci.image.layer.v1.tar", "model.safetensors")],
            },
            "it is a container image",
        ),
    ],
)
def test_invalid_artifact_manifest_is_refused(manifest: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestRefused, match=said):
        artifact_files(manifest)


def test_credentials_are_selected_by_host() -> None:
    text = '{"auths": {"ghcr.io": {"auth": "QQ=="}, "https://index.docker.io/v1/": {"username": "u", "password": "p"}}}'
    secret = {".dockerconfigjson": text}
    assert [registry_credentials(secret, host) for host in ("ghcr.io", "quay.io")] == ["QQ==", ""]
    assert registry_credentials(secret, "docker.io") == registry_credentials({"username": "u", "password": "p\n"}, "quay.io")
    assert base64.b64decode(registry_credentials(secret, "docker.io")) == b"u:p"
    for broken in ("{", "[]", '{"auths": {"x": 5}}'):
        with pytest.raises(RequestRefused, match="has an invalid"):
            registry_credentials({".dockerconfigjson": broken}, "x")
