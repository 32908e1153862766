"""Decide which addresses may be contacted, and which addresses may receive a Secret or the identity of a node. An
administrator lists the permitted addresses (docs/tenancy.md).

Pure functions. The decisions are necessary because an agent holds the Secrets of the whole cluster, while users who may not
read these Secrets can create models in their namespaces.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ome_operator.errors import InvalidOption
from ome_operator.settings.agent import GRANT_EXAMPLE
from ome_operator.storage.addresses import HostRules, Network, host, host_and_port, host_listed, location
from ome_operator.storage.listing import RequestRefused, is_plain


class SecretGrant(BaseModel):
    """The purposes for which one Secret may be used."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1)
    hosts: tuple[str, ...] = Field(min_length=1)
    """Hosts (`host` or `host:port`) that may receive the Secret over TLS."""
    namespaces: tuple[str, ...] = ()
    """Namespaces whose BaseModels may use the Secret. Cluster-scoped models may always use the Secret."""
    uris: tuple[str, ...] = ()
    """Permitted storage URIs. Each entry permits this URI and all URIs that continue it after a `/`. If there are no
    entries, all URIs are permitted."""

    def permits(self, uri: str) -> bool:
        """Return whether `uris` permits a single storage URI, which may contain a revision or a region.

        A URI with a component that clients or servers would rewrite is not permitted, because the requested URI would
        differ from the URI that was compared with the list.
        """
        if not self.uris:
            return True
        below = tuple(f"{entry.rstrip('/')}/" for entry in self.uris)
        forms = [f"{form.rstrip('/')}/" for form in (uri, location(uri))]
        return is_plain(uri.partition("://")[2].rstrip("/")) and any(form.startswith(below) for form in forms)


@dataclass(frozen=True, kw_only=True)
class Trust:
    """The permissions that an administrator gives to the agents on the command line."""

    secrets: Mapping[str, SecretGrant] = field(default_factory=dict)
    identity_hosts: frozenset[str] = frozenset()
    identity_namespaces: frozenset[str] = frozenset()
    private_hosts: frozenset[str] = frozenset()
    """Hosts that may be contacted although their IP addresses are private."""
    refused_addresses: tuple[Network, ...] = ()
    """Networks whose addresses are treated as private although they are public."""
    endpoints: frozenset[str] = frozenset()
    """Hosts that a BaseModel may use as the endpoint of an object store."""


def parse_grant(text: str) -> SecretGrant:
    """Parse a grant from the command line. Raises InvalidOption if it is invalid."""
    if not text.lstrip().startswith("{"):
        raise InvalidOption(
            f"--secret {text}: without hosts, the Secret could be sent to every address. Name the hosts, for example "
            f"{GRANT_EXAMPLE}"
        )
    try:
        return SecretGrant.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the value"
        raise InvalidOption(f"--secret {text}: {field}: {first['msg']}. Example: {GRANT_EXAMPLE}") from error


class ModelGrant(NamedTuple):
    """The permissions of one model."""

    trust: Trust
    namespace: str
    """Namespace of the model, "" for a cluster-scoped model."""
    key: str
    """Name of the Secret in `spec.storage.key`."""
    uri: str
    """The URI of one source. A model with `filesFrom` has two sources, each of which needs its own permission."""

    def check_secret(self, address: str) -> None:
        """Raise RequestRefused if the model's Secret may not be sent to this address. The message contains the setting that
        an administrator has to change.
        """
        grant, target = self.trust.secrets.get(self.key), host(address)
        secret = f"the Secret {self.key} of spec.storage.key"
        if grant is None:
            raise RequestRefused(f"{secret} is not among agent.secrets of the chart: ask an administrator to add it")
        if self.namespace and self.namespace not in grant.namespaces:
            raise RequestRefused(
                f"{secret} is not allowed for namespace {self.namespace}: ask an administrator to add the namespace to "
                "agent.secrets[].namespaces"
            )
        if not grant.permits(self.uri):
            raise RequestRefused(
                f"{secret} is not allowed for {self.uri}: ask an administrator to add the URI to agent.secrets[].uris"
            )
        if not host_listed(grant.hosts, *host_and_port(address)):
            raise RequestRefused(
                f"{secret} is not allowed for host {target}: ask an administrator to add the host to agent.secrets[].hosts"
            )
        if not address.lower().startswith("https://"):
            raise RequestRefused(f"{secret} is never sent over plain HTTP, which {address} uses: enable TLS on {target}")

    def may_use_identity(self, address: str, *, own: bool) -> bool:
        """Return whether the identity of the node or pod may be sent to an object store.

        `own` is true if the address is the cloud provider's default, and false if it is an endpoint from the model's spec.
        """
        if not address.lower().startswith("https://"):
            return False
        if self.namespace and self.namespace not in self.trust.identity_namespaces:
            return False
        return (own and not self.namespace) or host_listed(self.trust.identity_hosts, *host_and_port(address))

    def check_endpoint(self, address: str, *, own: bool) -> None:
        """Raise RequestRefused if a BaseModel uses an object store whose address no administrator permitted.

        `own` is true if the address is the cloud provider's default. The name of the host is checked, because the IP
        addresses are not checked when the connection is opened (loopback_proxy.py).
        """
        allowed = self.trust.endpoints | self.trust.private_hosts
        if self.namespace and not own and not host_listed(allowed, *host_and_port(address)):
            raise RequestRefused(
                f"spec.storage.parameters.endpoint {address} of a BaseModel is not among agent.endpoints of the chart: "
                "ask an administrator to add its host"
            )

    def address_rules(self, address: str) -> HostRules:
        """Return which addresses may be contacted. The hosts in the chart's values may have any address, and for a
        cluster-scoped model also the host in `address`.
        """
        named = frozenset() if self.namespace else frozenset({host(address)})
        return HostRules(self.trust.private_hosts | named, self.trust.refused_addresses)
