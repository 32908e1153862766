"""Determine the URLs from which the files of a storage URI are downloaded. Pure functions."""

import ipaddress
import re
from collections.abc import Collection, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from ome_operator.storage.listing import RequestRefused
from ome_operator.storage.oci_artifact import parse_reference

HUB = "https://huggingface.co"
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""Pattern of strings that may become a part of a host name. Any other string could change the host."""


def source_address(uri: str, parameters: Mapping[str, str], hub: str = "") -> str:
    """Return the scheme and host from which the files of a single URI are downloaded. Raises RequestRefused if the URI has
    no host.

    `hub` is the address of this cluster's hub. `parameters.endpoint` overrides the address.
    """
    if endpoint := parameters.get("endpoint"):
        return endpoint.rstrip("/")
    kind, _, rest = uri.partition("://")
    if kind == "hf":
        return (hub or HUB).rstrip("/")
    if kind == "oci":
        artifact = parse_reference(rest)
        return artifact.address if artifact else oracle_address(uri, parameters)
    if kind == "gs":
        return "https://storage.googleapis.com"
    if kind == "az":
        return f"https://{_part('spec.storage.parameters.account', parameters.get('account', ''))}.blob.core.windows.net"
    return f"https://s3.{region(rest, parameters)}.amazonaws.com"


def location(uri: str) -> str:
    """Return a storage URI without its revision, tag and region. The result names a repository, or a bucket and a prefix."""
    kind, _, rest = uri.partition("://")
    if kind == "hf":
        return f"hf://{rest.partition('@')[0].strip('/')}"
    if kind == "oci" and (artifact := parse_reference(rest)):
        return f"oci://{artifact.host}/{artifact.repository}"
    if kind == "s3":
        bucket, slash, prefix = rest.partition("/")
        return f"s3://{bucket.partition('@')[0]}{slash}{prefix}"
    return uri


def host_and_port(address: str) -> tuple[str, int | None]:
    """Return the host of a URL in lower case, and its port (None if the URL names no port). Raises RequestRefused if the URL
    is invalid.
    """
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        return (parts.hostname or "").lower(), parts.port
    except ValueError as error:
        raise RequestRefused(f"{address[:200]!r} is not a valid address: {error}") from error


def host(address: str) -> str:
    """Return the host of a URL in lower case, as `host`, or as `host:port` if the URL has a port."""
    name, port = host_and_port(address)
    return f"{name}:{port}" if port else name


def host_listed(hosts: Collection[str], name: str, port: int | None) -> bool:
    """Return whether `hosts` contains this host; an entry without a port matches all ports."""
    return any(entry.lower() in (name, f"{name}:{port}") for entry in hosts)


def region(rest: str, parameters: Mapping[str, str]) -> str:
    """Return the region of an S3 bucket: the region in `bucket@region`, otherwise the parameter `region`, otherwise
    `us-east-1`. Raises RequestRefused if the region cannot be part of a host name. `rest` is the part of the URI after
    `s3://`; "" for other stores.
    """
    named = rest.partition("/")[0].partition("@")[2]
    return _part("spec.storage.parameters.region", named or parameters.get("region", "us-east-1"))


def oracle_address(uri: str, parameters: Mapping[str, str]) -> str:
    """Return the address of `oci://n/<namespace>/b/<bucket>/o/<path>` in the region of the parameters. Raises
    RequestRefused if the parameters contain no region.
    """
    if not parameters.get("region"):
        raise RequestRefused(f"spec.storage.storageUri {uri} needs a region: set spec.storage.parameters.region")
    namespace = _part("the namespace of spec.storage.storageUri", parse_oracle(uri).namespace)
    return f"https://{namespace}.compat.objectstorage.{region('', parameters)}.oraclecloud.com"


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class HostRules(NamedTuple):
    """States which private addresses may be contacted, and which public addresses may not."""

    hosts: frozenset[str] = frozenset()
    """Hosts (`host` or `host:port`) that may have any address."""
    refused: tuple[Network, ...] = ()
    """Networks of the cluster whose addresses are treated as private although they are public."""


class OracleLocation(NamedTuple):
    """The parts of an Oracle object storage URI, `oci://n/…`."""

    namespace: str
    bucket: str
    prefix: str


def parse_oracle(uri: str) -> OracleLocation:
    """Return the parts of `oci://n/<namespace>/b/<bucket>/o/<path>`. Raises RequestRefused for any other URI."""
    parts = uri.removeprefix("oci://").split("/", 5)
    if len(parts) < 5 or parts[0] != "n" or parts[2] != "b" or parts[4] != "o":
        raise RequestRefused(
            f"{uri} is not a valid oci:// URI: write oci://n/<namespace>/b/<bucket>/o/<path> for an object store, or, "
            "for models only, oci://<registry host with a dot or a port>/<repository>[:tag][@sha256:…] for an artifact"
        )
    return OracleLocation(parts[1], parts[3], parts[5] if len(parts) > 5 else "")


def _part(field: str, value: str) -> str:
    if not _LABEL.fullmatch(value):
        raise RequestRefused(
            f"{field} {value[:80]!r} cannot be a part of a host name: use lower-case letters, digits and dashes"
        )
    return value
