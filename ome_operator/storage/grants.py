"""Who is shown a Secret or a node's identity, and which addresses are asked: what an administrator named (docs/tenancy.md).

Pure. An agent holds Secrets of the whole cluster, and models of a namespace are written by people who may not read them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ome_operator.errors import UserError
from ome_operator.storage.addresses import host, listed, place
from ome_operator.storage.listing import Refused

FORM = '{"name": "hf-token", "hosts": ["huggingface.co"], "namespaces": ["team-a"]}'


class Grant(BaseModel):
    """One Secret, and what it is for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1)
    hosts: tuple[str, ...] = Field(min_length=1)
    """`host` or `host:port` that it is shown to, over TLS."""
    namespaces: tuple[str, ...] = ()
    """Namespaces whose BaseModels may name it; cluster-wide models may always."""
    uris: tuple[str, ...] = ()
    """Where there are any: the storage URI begins with one of them."""


@dataclass(frozen=True, kw_only=True)
class Trust:
    """What an administrator allows the agents; made once from the command line."""

    secrets: Mapping[str, Grant] = field(default_factory=dict)
    identity_hosts: frozenset[str] = frozenset()
    identity_namespaces: frozenset[str] = frozenset()
    private_hosts: frozenset[str] = frozenset()
    """Hosts that are asked though their addresses are private."""
    endpoints: frozenset[str] = frozenset()
    """Hosts that a BaseModel may name as the endpoint of an object store."""


def grant(text: str) -> Grant:
    """A grant as the command line has it; UserError for anything else."""
    if not text.lstrip().startswith("{"):
        raise UserError(f"--secret {text}: a name alone would be shown to any address. Write what it is for: {FORM}")
    try:
        return Grant.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "it"
        raise UserError(f"--secret {text}: {place}: {first['msg']}. Write {FORM}") from error


class ModelGrant(NamedTuple):
    """What holds for one model."""

    trust: Trust
    namespace: str
    """"" for a cluster-wide model."""
    key: str
    """`spec.storage.key`."""
    uri: str

    def shows(self, address: str) -> None:
        """The Secret may be sent to this address; Refused with who has to allow it."""
        grant, where = self.trust.secrets.get(self.key), host(address)
        said = f"the Secret {self.key} of spec.storage.key"
        if grant is None:
            raise Refused(f"{said} is not among agent.secrets of the chart")
        if self.namespace and self.namespace not in grant.namespaces:
            raise Refused(
                f"{said} is not for namespace {self.namespace}: an administrator adds it to agent.secrets[].namespaces"
            )
        if grant.uris and not self.uri.startswith(grant.uris):
            raise Refused(f"{said} is not for {self.uri}: an administrator adds it to agent.secrets[].uris")
        if not listed(grant.hosts, *place(address)):
            raise Refused(f"{said} is not for the host {where}: an administrator adds it to agent.secrets[].hosts")
        if not address.lower().startswith("https://"):
            raise Refused(f"{said} is never sent over plain HTTP, as {address} would need: give {where} TLS")

    def identity(self, address: str, *, own: bool) -> bool:
        """Whether an object store sees who the node or pod is; `own`: the address is the cloud's, and no endpoint."""
        if not address.lower().startswith("https://"):
            return False
        if self.namespace and self.namespace not in self.trust.identity_namespaces:
            return False
        return (own and not self.namespace) or listed(self.trust.identity_hosts, *place(address))

    def store(self, address: str, *, own: bool) -> None:
        """An object store may be asked; Refused where a BaseModel names an address that nobody allowed: the client of object
        stores connects by itself, so the address cannot be looked at when it connects.
        """
        allowed = self.trust.endpoints | self.trust.private_hosts
        if self.namespace and not own and not listed(allowed, *place(address)):
            raise Refused(
                f"spec.storage.parameters.endpoint {address} of a BaseModel has to be among agent.endpoints of the chart: "
                "an administrator adds its host"
            )

    def private(self, address: str) -> frozenset[str]:
        """Hosts that may have private addresses: those of the chart, and for a cluster-wide model the one that it names."""
        return self.trust.private_hosts | (frozenset() if self.namespace else frozenset({host(address)}))
