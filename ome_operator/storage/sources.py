"""From a storage URI to the source of its files, or a sentence why there is none."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ome_operator.core.weights.mount import FETCHED, FILES_FROM, both, managed
from ome_operator.storage.addresses import address, host, oracle, oracle_place, region
from ome_operator.storage.beside import Beside
from ome_operator.storage.grants import ModelGrant
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
    guard: ModelGrant | None = None
    """What an administrator allows; None where the Secret and the network are those of whoever asks."""


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
        endpoint = address(uri, access.parameters, access.endpoint)
        token = access.secret.get("token", "").strip()
        if token and access.guard:
            access.guard.shows(endpoint)
        return Hub(repo.strip("/"), revision, endpoint=endpoint, token=token, private=_private(access, endpoint))
    if kind == "oci" and (place := reference(rest)):
        from ome_operator.storage.oci_registry import Registry

        endpoint, shown = address(uri, access.parameters), credentials(access.secret, place.host)
        shows = access.guard.shows if access.guard else lambda address: None
        private = _private(access, endpoint)
        return Registry(place, endpoint=endpoint, credentials=shown, shows=shows, private=private)
    if not managed(uri):
        raise Refused(
            f"spec.storage.storageUri {uri} cannot be fetched: {kind}:// is not served; put the files on the nodes and "
            f"write local:///path, or use one of {', '.join(sorted(f'{one}://' for one in FETCHED))}"
        )
    return bucket(uri, access)


def _private(access: Access, endpoint: str) -> frozenset[str] | None:
    """Hosts whose addresses may be private; None: all. The hub of this cluster is an administrator's choice."""
    if access.guard is None:
        return None
    chosen = {host(access.endpoint)} if access.endpoint else set()
    return access.guard.private(endpoint) | chosen


def bucket(uri: str, access: Access) -> "Objects":
    """The place in an object store that a URI of `s3`, `gs`, `az` or `oci` names; Refused when something is missing."""
    from ome_operator.storage import object_store

    kind, _, rest = uri.partition("://")
    if kind == "az" and not access.parameters.get("account"):
        raise Refused(f"spec.storage.storageUri {uri} needs the account in spec.storage.parameters.account")
    given, secret = _opened(uri, access), access.secret
    bucket, _, prefix = rest.partition("/")
    weak = given.get("verify") == "size"
    if kind == "gs":
        return object_store.Objects(object_store.google(bucket, given, secret), prefix, sizes_only=weak)
    if kind == "az":
        return object_store.Objects(object_store.azure(bucket, given, secret), prefix, sizes_only=weak)
    bucket, endpoint, where = bucket.partition("@")[0], given.get("endpoint", ""), region(rest, given)
    if kind == "oci":
        _, bucket, prefix = oracle_place(uri)
        endpoint = endpoint or oracle(uri, given)
    store = object_store.s3(bucket, where, endpoint, given, secret)
    return object_store.Objects(store, prefix, sizes_only=weak)


def _opened(uri: str, access: Access) -> Mapping[str, str]:
    """The parameters, `anonymous` where the store shall not see who we are; Refused for what may not be asked or shown."""
    given, guard = access.parameters, access.guard
    if guard is None:
        return given
    place, own = address(uri, given), "endpoint" not in given
    guard.store(place, own=own)
    if given.get("anonymous") == "true":
        return given
    if access.secret:
        guard.shows(place)
        return given
    return given if guard.identity(place, own=own) else {**given, "anonymous": "true"}
