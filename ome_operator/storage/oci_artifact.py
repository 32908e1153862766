"""What `oci://<registry>/<repository>` names, and the files that a manifest says an artifact has. Pure."""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ome_operator.storage.hashes import Hash
from ome_operator.storage.listing import Refused, RemoteFile
from ome_operator.util.unread import UNREAD

MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
_DIGEST = r"sha256:[0-9a-f]{64}"
_REFERENCE = re.compile(
    r"(?P<host>localhost|[\w-]+(?:[.:][\w.:-]*)|\[[0-9a-fA-F:]+\](?::\d+)?)"
    r"/(?P<repository>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
    rf"(?::(?P<tag>\w[\w.-]{{0,127}}))?(?:@(?P<digest>{_DIGEST}))?"
)
_NAMES = ("org.opencontainers.image.title", "org.cncf.model.filepath")
"""Annotations of a layer that say its file's name: of the OCI image specification, and of ModelPack."""
_UNPACK = "io.deis.oras.content.unpack"
_PACKED = re.compile(r"application/vnd\.(kitops|cncf\.model)\..*\.tar(\+gzip)?")
_PACKED_IF_NAMED = "application/vnd.oci.image.layer.v1.tar+gzip"
"""A directory, if it has a name; the layer of a container image has none. Without +gzip it is the type of any file."""
_DOCKER = "docker.io"


class Reference(NamedTuple):
    """An artifact in a registry."""

    host: str
    """With the port, where one is given."""
    repository: str
    revision: str
    """A digest, else a tag."""

    @property
    def address(self) -> str:
        """Where the registry answers, if nobody says otherwise."""
        return f"https://{'registry-1.docker.io' if self.host == _DOCKER else self.host}"


def reference(rest: str) -> Reference | None:
    """What comes after `oci://`, if it begins with the host of a registry.

    As in the names of images a host has a dot or a port or is `localhost`; so it is never the `n` of object storage.
    """
    if (found := _REFERENCE.fullmatch(rest)) is None:
        return None
    return Reference(found["host"], found["repository"], found["digest"] or found["tag"] or "latest")


def files(manifest: Mapping[str, Any]) -> list[RemoteFile]:
    """The files and archives of an artifact; Refused with a sentence for what is none."""
    said = manifest.get("mediaType") or MANIFESTS[0]
    kind = said if isinstance(said, str) else "of no text"
    if kind not in MANIFESTS or not isinstance(manifest.get("layers"), list):
        raise Refused(f"it is no artifact but of type {kind[:80]}: name one manifest by its digest")
    layers = manifest["layers"]
    try:
        return [_file(one, alone=len(layers) == 1) for one in layers]
    except UNREAD as error:
        raise Refused(f"its manifest has a layer that cannot be read ({type(error).__name__})") from error


def _file(layer: Mapping[str, Any], *, alone: bool) -> RemoteFile:
    kind, size, notes = str(layer["mediaType"]), int(layer["size"]), layer.get("annotations") or {}
    if not re.fullmatch(_DIGEST, digest := str(layer["digest"])):
        raise Refused(f"its manifest names a layer by {digest[:80]!r}, not by a SHA-256")
    proof = Hash("sha256", digest.removeprefix("sha256:"))
    name = next((str(notes[key]) for key in _NAMES if key in notes), "")
    if kind.endswith("+zstd"):
        raise Refused(f"its layer {name or digest} is compressed with zstd, which is not read here: push tar or tar+gzip")
    if notes.get(_UNPACK) == "true" or _PACKED.fullmatch(kind) or (name and kind == _PACKED_IF_NAMED):
        # One directory that was pushed as a whole is the model's directory, not a directory in it.
        return RemoteFile(f"layer-{proof.value[:12]}.tar", size, proof, name.strip("/") if alone else "")
    if not name:
        raise Refused(f"its layer {digest[:19]}… has no file name (annotation {_NAMES[0]}): is it a container image?")
    return RemoteFile(name, size, proof)


def credentials(secret: Mapping[str, str], host: str) -> str:
    """`user:password` in base64 for a registry, "" where the Secret has none for it.

    The Secret holds `username` and `password`, or is one of those that pull images (`.dockerconfigjson`).
    """
    if "username" in secret:
        return base64.b64encode(f"{secret['username'].strip()}:{secret.get('password', '').strip()}".encode()).decode()
    try:
        entries = dict(_entries(secret.get(".dockerconfigjson") or "{}"))
    except (ValueError, TypeError, AttributeError, RecursionError, binascii.Error) as error:
        raise Refused("the Secret of spec.storage.key has a .dockerconfigjson that cannot be read") from error
    return entries.get(host, "")


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Host and credentials of every entry. Docker's own host is written as an address of its old API."""
    for key, one in json.loads(text).get("auths", {}).items():
        host = key.partition("://")[2].partition("/")[0] if "://" in key else key.partition("/")[0]
        plain = f"{one.get('username', '')}:{one.get('password', '')}"
        said = one.get("auth") or base64.b64encode(plain.encode()).decode()
        yield _DOCKER if host.endswith("docker.io") else host, said
