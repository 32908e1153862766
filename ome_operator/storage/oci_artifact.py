"""Parse `oci://<registry>/<repository>` and the files in the manifest of an OCI artifact. Pure functions."""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ome_operator.api.values import OCI_ARTIFACT, OCI_DIGEST, OCI_TAG
from ome_operator.storage.hashes import Hash
from ome_operator.storage.listing import MAX_FILES, RemoteFile, RequestRefused
from ome_operator.util.json_limits import MIB, parse_untrusted
from ome_operator.util.untrusted_json import PARSE_ERRORS

MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
_REFERENCE = re.compile(OCI_ARTIFACT)
_NAMES = ("org.opencontainers.image.title", "org.cncf.model.filepath")
"""Annotations that contain the file name of a layer, in the OCI image specification and in ModelPack."""
_UNPACK = "io.deis.oras.content.unpack"
_PACKED = re.compile(r"application/vnd\.(?!oci\.image\.|docker\.(image|container)\.).*[./]tar(\+gzip)?")
"""Media types of packed directories: the types of ModelPack, KitOps, Docker's models, and other types whose last word is
`tar`."""
_PACKED_IF_NAMED = "application/vnd.oci.image.layer.v1.tar+gzip"
"""Media type of a layer that is a packed directory if the layer has a name. (Layers of container images have no name.)
The same type without +gzip is used for files of any type."""
_IMAGE_CONFIGS = ("application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json")
_IMAGE_LAYERS = ("application/vnd.oci.image.layer.", "application/vnd.docker.image.rootfs.")
_DOCKER = "docker.io"
_SECRET_MEMORY = 64 * MIB
"""Maximum bytes of memory while an image pull Secret, which has at most 1 MiB, is parsed."""


class Reference(NamedTuple):
    """The address of an artifact in a registry."""

    host: str
    """Host name of the registry, with the port if the URI contains a port."""
    repository: str
    revision: str
    """The digest if the URI contains a digest, otherwise the tag."""

    @property
    def address(self) -> str:
        """The default URL of the registry. A configured endpoint overrides it."""
        return f"https://{'registry-1.docker.io' if self.host == _DOCKER else self.host}"


def parse_reference(rest: str) -> Reference | None:
    """Return the reference in `rest`, the part of a URI after `oci://`; None if `rest` does not begin with the host of a
    registry.
    """
    if (match := _REFERENCE.fullmatch(rest)) is None:
        return None
    return Reference(match["host"], match["repository"], match["digest"] or match["tag"] or "latest")


def is_revision(text: str) -> bool:
    """Return whether a text is a tag or a digest."""
    return re.fullmatch(f"{OCI_TAG}|{OCI_DIGEST}", text) is not None


def artifact_files(manifest: Mapping[str, Any]) -> list[RemoteFile]:
    """Return the files and archives of an artifact. Raises RequestRefused if the manifest does not describe a supported
    artifact.
    """
    media_type = manifest.get("mediaType") or MANIFESTS[0]
    kind = media_type if isinstance(media_type, str) else "unknown"
    if kind not in MANIFESTS or not isinstance(manifest.get("layers"), list):
        raise RequestRefused(
            f"it is not an artifact but an object of type {kind[:80]}: refer to a single manifest by its digest"
        )
    layers = manifest["layers"][: MAX_FILES + 1]
    config = manifest.get("config")
    try:
        of_image = isinstance(config, dict) and config.get("mediaType") in _IMAGE_CONFIGS
        if of_image and any(str(layer["mediaType"]).startswith(_IMAGE_LAYERS) for layer in layers):
            raise RequestRefused("it is a container image, whose layers are not files of a model: push an artifact")
        return [_file(layer) for layer in layers]
    except PARSE_ERRORS as error:
        raise RequestRefused(f"its manifest has an invalid layer ({type(error).__name__})") from error


def _file(layer: Mapping[str, Any]) -> RemoteFile:
    kind, size, notes = str(layer["mediaType"]), int(layer["size"]), layer.get("annotations") or {}
    if not re.fullmatch(OCI_DIGEST, digest := str(layer["digest"])):
        raise RequestRefused(f"its manifest identifies a layer by {digest[:80]!r} instead of a SHA-256 digest")
    proof = Hash("sha256", digest.removeprefix("sha256:"))
    name = next((str(notes[key]) for key in _NAMES if key in notes), "")
    if kind.endswith("+zstd"):
        raise RequestRefused(
            f"its layer {name or digest} is compressed with zstd, which is not supported: push tar or tar+gzip"
        )
    if notes.get(_UNPACK) == "true" or _PACKED.fullmatch(kind) or (name and kind == _PACKED_IF_NAMED):
        return RemoteFile(f"layer-{proof.value[:12]}.tar", size, proof, unpack=True)
    if not name:
        raise RequestRefused(
            f"its layer {digest[:19]}… has no file name (annotation {_NAMES[0]}): check that it is an artifact and not "
            "a container image"
        )
    return RemoteFile(name, size, proof)


def registry_credentials(secret: Mapping[str, str], host: str) -> str:
    """Return `user:password` in base64 for the registry at `host`; "" if the Secret contains no credentials for this
    registry.

    The Secret contains `username` and `password`, or is an image pull Secret (`.dockerconfigjson`).
    """
    if "username" in secret:
        return base64.b64encode(f"{secret['username'].strip()}:{secret.get('password', '').strip()}".encode()).decode()
    try:
        config = secret.get(".dockerconfigjson") or "{}"
        entries = parse_untrusted(config, "the Secret", memory=_SECRET_MEMORY, extract=lambda value: dict(_entries(value)))
    except (*PARSE_ERRORS, binascii.Error) as error:
        raise RequestRefused("the Secret of spec.storage.key has an invalid .dockerconfigjson") from error
    return entries.get(host, "")


def _entries(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Return the host and the credentials of each entry of an image pull Secret. The host of Docker Hub is stored as the
    URL of its old API.
    """
    for key, entry in config.get("auths", {}).items():
        host = key.partition("://")[2].partition("/")[0] if "://" in key else key.partition("/")[0]
        plain = f"{entry.get('username', '')}:{entry.get('password', '')}"
        encoded = entry.get("auth") or base64.b64encode(plain.encode()).decode()
        yield _DOCKER if host.endswith("docker.io") else host, encoded
