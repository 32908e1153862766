"""Create the source for a storage URI, or state why the URI is not supported."""

import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ome_operator.core.weights.mount import FETCHED, FILES_FROM, agents_can_download, split_weights_uri
from ome_operator.storage.addresses import HostRules, host, oracle_address, parse_oracle, region, source_address
from ome_operator.storage.combined_source import CombinedSource
from ome_operator.storage.grants import ModelGrant
from ome_operator.storage.listing import RequestRefused, Source
from ome_operator.storage.oci_artifact import parse_reference, registry_credentials

if TYPE_CHECKING:
    from ome_operator.storage.object_store import ObjectStore


class Access(NamedTuple):
    """The settings and permissions that a source needs."""

    parameters: Mapping[str, str]
    """Values of `spec.storage.parameters`: endpoint, region, account, and verify (`size` if the store's ETags are not MD5
    hashes)."""
    secret: Mapping[str, str]
    """Contents of the Secret of `spec.storage.key`. They must not be logged."""
    endpoint: str = ""
    """URL of this cluster's hub; "" means the default hub."""
    guard: ModelGrant | None = None
    """Permissions that an administrator gives to the model. None if there are no restrictions, because the Secret and the
    network belong to the caller."""


def open_source(uri: str, access: Access) -> Source:
    """Return the source of a URI. If the URI also names a repository in `FILES_FROM`, missing files come from this
    repository. Raises RequestRefused with a message if the URI is not supported.
    """
    first, other = split_weights_uri(uri)
    if not other:
        return _single(first, access)
    if not re.fullmatch(r"hf://[^/@]+/[^/@]+(@.+)?", other):
        field_value = f"spec.storage.parameters.{FILES_FROM} {other} is not a repository of a model hub"
        raise RequestRefused(f"{field_value}: write hf://organization/model[@revision]")
    hub = first.startswith("hf://")  # otherwise the endpoint belongs to an object store
    return CombinedSource(_single(first, access), _single(other, access if hub else access._replace(parameters={})))


def _single(uri: str, access: Access) -> Source:
    kind, _, rest = uri.partition("://")
    access = access._replace(guard=access.guard and access.guard._replace(uri=uri))
    check_secret = access.guard.check_secret if access.guard else _unrestricted
    if kind == "hf":
        from ome_operator.storage.hub import Hub

        repo, _, revision = rest.partition("@")
        endpoint = source_address(uri, access.parameters, access.endpoint)
        token, reach = access.secret.get("token", "").strip(), _reach(access, endpoint)
        if token:
            check_secret(endpoint)
        return Hub(repo.strip("/"), revision, endpoint=endpoint, token=token, check_secret=check_secret, reach=reach)
    if kind == "oci" and (artifact := parse_reference(rest)):
        from ome_operator.storage.oci_registry import OciRegistry

        endpoint, secret = source_address(uri, access.parameters), registry_credentials(access.secret, artifact.host)
        reach = _reach(access, endpoint)
        return OciRegistry(artifact, endpoint=endpoint, credentials=secret, check_secret=check_secret, reach=reach)
    if not agents_can_download(uri):
        raise RequestRefused(
            f"spec.storage.storageUri {uri} cannot be downloaded: {kind}:// is not supported; put the files on the nodes "
            f"and write local:///path, or use one of {', '.join(sorted(f'{one}://' for one in FETCHED))}"
        )
    return open_bucket(uri, access)


def _unrestricted(address: str) -> None:
    """Permit a Secret for every address, because the Secret belongs to the caller."""


def _reach(access: Access, endpoint: str) -> HostRules | None:
    """Return which addresses may be contacted; None means all. The hub of this cluster may have any address, because an
    administrator configured it.
    """
    if access.guard is None:
        return None
    chosen = {host(access.endpoint)} if access.endpoint else set()
    reach = access.guard.address_rules(endpoint)
    return reach._replace(hosts=reach.hosts | chosen)


def open_bucket(uri: str, access: Access) -> "ObjectStore":
    """Return the location in an object store for an `s3`, `gs`, `az` or `oci` URI. Raises RequestRefused if a part of the
    URI is missing.
    """
    from ome_operator.storage import object_store

    kind, _, rest = uri.partition("://")
    if kind == "az" and not access.parameters.get("account"):
        raise RequestRefused(f"spec.storage.storageUri {uri} needs a storage account: set spec.storage.parameters.account")
    parameters, only = _permissions(uri, access)
    bucket, _, prefix = rest.partition("/")
    if kind == "gs":
        make = partial(object_store.google, bucket, parameters, access.secret)
    elif kind == "az":
        make = partial(object_store.azure, bucket, parameters, access.secret)
    else:
        bucket, endpoint, region_name = (
            bucket.partition("@")[0],
            parameters.get("endpoint", ""),
            region(rest, parameters),
        )
        if kind == "oci":
            _, bucket, prefix = parse_oracle(uri)
            endpoint = endpoint or oracle_address(uri, parameters)
        make = partial(object_store.s3, bucket, region_name, endpoint, parameters, access.secret)
    return object_store.ObjectStore(make, prefix, only=only, sizes_only=parameters.get("verify") == "size")


def _permissions(uri: str, access: Access) -> tuple[Mapping[str, str], str]:
    """Return the parameters, and the only address that may be contacted.

    The parameters contain `anonymous` if the store must not receive an identity. The address is "" if the identity of the
    pod may be used, because the store's client then also contacts hosts that only this client can determine. The address is
    also "" for an access without restrictions. Raises RequestRefused for an address or a Secret that is not permitted.
    """
    parameters, guard = access.parameters, access.guard
    if guard is None:
        return parameters, ""
    store_address, own = source_address(uri, parameters), "endpoint" not in parameters
    guard.check_endpoint(store_address, own=own)
    if parameters.get("anonymous") == "true":
        return parameters, store_address
    if access.secret:
        guard.check_secret(store_address)
        return parameters, store_address
    if guard.may_use_identity(store_address, own=own):
        return parameters, ""
    return {**parameters, "anonymous": "true"}, store_address
