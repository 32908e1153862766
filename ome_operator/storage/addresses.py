"""Where the files of a storage URI are asked for. Pure."""

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from ome_operator.storage.listing import Refused
from ome_operator.storage.oci_artifact import reference

HUB = "https://huggingface.co"
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""What may become a part of a host's name: anything else could lead to another host."""


def address(uri: str, parameters: Mapping[str, str], hub: str = "") -> str:
    """Scheme and host that a single URI leads to; Refused for what names none.

    `hub` is the one that this cluster uses. `parameters.endpoint` is another address.
    """
    if endpoint := parameters.get("endpoint"):
        return endpoint.rstrip("/")
    kind, _, rest = uri.partition("://")
    if kind == "hf":
        return (hub or HUB).rstrip("/")
    if kind == "oci":
        place = reference(rest)
        return place.address if place else oracle(uri, parameters)
    if kind == "gs":
        return "https://storage.googleapis.com"
    if kind == "az":
        return f"https://{_part('spec.storage.parameters.account', parameters.get('account', ''))}.blob.core.windows.net"
    return f"https://s3.{region(rest, parameters)}.amazonaws.com"


def place(address: str) -> tuple[str, int | None]:
    """Host of a URL, in lower case, and the port if it names one; Refused for what is none."""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        return (parts.hostname or "").lower(), parts.port
    except ValueError as error:
        raise Refused(f"{address[:200]!r} is no address: {error}") from error


def host(address: str) -> str:
    """`host` or `host:port` of a URL, in lower case."""
    name, port = place(address)
    return f"{name}:{port}" if port else name


def listed(hosts: Collection[str], name: str, port: int | None) -> bool:
    """Whether one of these hosts is meant; an entry without a port is for all of its ports."""
    return any(entry.lower() in (name, f"{name}:{port}") for entry in hosts)


def region(rest: str, parameters: Mapping[str, str]) -> str:
    """Region of an S3 bucket: `bucket@region`, else the parameter."""
    named = rest.partition("/")[0].partition("@")[2]
    return _part("spec.storage.parameters.region", named or parameters.get("region", "us-east-1"))


def oracle(uri: str, parameters: Mapping[str, str]) -> str:
    """Host of `oci://n/<namespace>/b/<bucket>/o/<path>`, in the region of the parameters."""
    if not parameters.get("region"):
        raise Refused(f"spec.storage.storageUri {uri} needs the region in spec.storage.parameters.region")
    namespace = _part("the namespace of spec.storage.storageUri", oracle_place(uri).namespace)
    return f"https://{namespace}.compat.objectstorage.{region('', parameters)}.oraclecloud.com"


class OraclePlace(NamedTuple):
    """What `oci://n/…` names."""

    namespace: str
    bucket: str
    prefix: str


def oracle_place(uri: str) -> OraclePlace:
    """The parts of `oci://n/<namespace>/b/<bucket>/o/<path>`; Refused for what is none."""
    parts = uri.removeprefix("oci://").split("/", 5)
    if len(parts) < 5 or parts[0] != "n" or parts[2] != "b" or parts[4] != "o":
        raise Refused(
            f"{uri} is no place for files: an object store is oci://n/<namespace>/b/<bucket>/o/<path>, and an artifact, "
            "which only models can be, oci://<a registry's host, with a dot or a port>/<repository>[:tag][@sha256:…]"
        )
    return OraclePlace(parts[1], parts[3], parts[5] if len(parts) > 5 else "")


def _part(field: str, value: str) -> str:
    if not _LABEL.fullmatch(value):
        raise Refused(f"{field} {value[:80]!r} is no part of a host's name: letters, digits and dashes")
    return value
