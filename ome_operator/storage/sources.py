"""From a storage URI to the source of its files, or a sentence why there is none."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ome_operator.core.weights.mount import FETCHED, FILES_FROM, both, managed
from ome_operator.storage.beside import Beside
from ome_operator.storage.listing import Refused, Source
from ome_operator.storage.oci_artifact import credentials, reference

if TYPE_CHECKING:
    from ome_operator.storage.object_store import Objects


class Access(NamedTuple):
    """How to reach a source."""

    parameters: Mapping[str, str]
    """`spec.storage.parameters`: endpoint, region, account, verify (`size` where an ETag is no MD5)."""
    secret: Mapping[str, str]
    """The Secret of `spec.storage.key`. Never to be logged."""
    endpoint: str = ""
    """The hub that this cluster uses."""


def source(uri: str, access: Access) -> Source:
    """The source of a URI, or of two; Refused with a sentence for what cannot be served."""
    first, other = both(uri)
    if not other:
        return _single(first, access)
    if not re.fullmatch(r"hf://[^/@]+/[^/@]+(@.+)?", other):
        said = f"spec.storage.parameters.{FILES_FROM} {other} is no repository of a hub"
        raise Refused(f"{said}: write hf://organization/model[@revision]")
    hub = first.startswith("hf://")  # else the endpoint is that of an object store
    return Beside(_single(first, access), _single(other, access if hub else access._replace(parameters={})))


def _single(uri: str, access: Access) -> Source:
    kind, _, rest = uri.partition("://")
    if kind == "hf":
        from ome_operator.storage.hub import Hub

        repo, _, revision = rest.partition("@")
        endpoint = access.parameters.get("endpoint", "") or access.endpoint
        return Hub(repo.strip("/"), revision, endpoint=endpoint, token=access.secret.get("token", "").strip())
    if kind == "oci" and (place := reference(rest)):
        from ome_operator.storage.oci_registry import Registry

        shown = credentials(access.secret, place.host)
        return Registry(place, endpoint=access.parameters.get("endpoint", ""), credentials=shown)
    if not managed(uri):
        raise Refused(
            f"spec.storage.storageUri {uri} cannot be fetched: {kind}:// is not served; put the files on the nodes and "
            f"write local:///path, or use one of {', '.join(sorted(f'{one}://' for one in FETCHED))}"
        )
    return bucket(uri, access)


def bucket(uri: str, access: Access) -> "Objects":
    """The place in an object store that a URI of `s3`, `gs`, `az` or `oci` names; Refused when something is missing."""
    from ome_operator.storage import object_store

    kind, _, rest = uri.partition("://")
    given, secret = access.parameters, access.secret
    bucket, _, prefix = rest.partition("/")
    weak = given.get("verify") == "size"
    if kind == "gs":
        return object_store.Objects(object_store.google(bucket, given, secret), prefix, sizes_only=weak)
    if kind == "az":
        if not given.get("account"):
            raise Refused(f"spec.storage.storageUri {uri} needs the account in spec.storage.parameters.account")
        return object_store.Objects(object_store.azure(bucket, given, secret), prefix, sizes_only=weak)
    bucket, _, region = bucket.partition("@")
    region, endpoint = region or given.get("region", "us-east-1"), given.get("endpoint", "")
    if kind == "oci":
        bucket, prefix, region, endpoint = _oracle(uri, rest, given)
    store = object_store.s3(bucket, region, endpoint, given, secret)
    return object_store.Objects(store, prefix, sizes_only=weak)


def _oracle(uri: str, rest: str, given: Mapping[str, str]) -> tuple[str, str, str, str]:
    """Bucket, prefix, region and endpoint of `oci://n/<namespace>/b/<bucket>/o/<path>`."""
    parts = rest.split("/", 5)
    region = given.get("region", "")
    if len(parts) < 5 or parts[0] != "n" or parts[2] != "b" or parts[4] != "o":
        raise Refused(
            f"{uri} is no place for files: an object store is oci://n/<namespace>/b/<bucket>/o/<path>, and an artifact, "
            "which only models can be, oci://<a registry's host, with a dot or a port>/<repository>[:tag][@sha256:…]"
        )
    if not region and "endpoint" not in given:
        raise Refused(f"spec.storage.storageUri {uri} needs the region in spec.storage.parameters.region")
    host = f"https://{parts[1]}.compat.objectstorage.{region}.oraclecloud.com"
    return parts[3], parts[5] if len(parts) > 5 else "", region or "us-east-1", given.get("endpoint", host)
