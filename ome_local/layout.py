"""Where everything of one cluster lies: one directory, removed as a whole by `down`."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ome_operator.errors import UserError

DEFAULT_NAME = "ome"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


def home() -> Path:
    """$OME_LOCAL_HOME, or the place for state of the person's session; one directory below it per cluster."""
    if own := os.environ.get("OME_LOCAL_HOME"):
        return Path(own)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "ome" / "clusters"


def home_is_ours() -> bool:
    """True when nobody named the folder, so that we may remove it when it is empty."""
    return "OME_LOCAL_HOME" not in os.environ


def layout(name: str) -> "Layout":
    """The directory of the cluster of this name, which may not exist yet."""
    if not _NAME.fullmatch(name):
        raise UserError(f"A cluster's name is made of a-z, 0-9 and -, at most 40 of them; {name!r} is not.")
    return Layout(home().absolute() / name)


def known() -> list[str]:
    """Names of the clusters that have a directory."""
    return sorted(path.parent.name for path in home().glob("*/cluster.json"))


def chosen(name: str | None) -> str:
    """The name that a person means: the one given, else the default cluster, else the only one that there is."""
    if name is not None:
        return name
    there = known()
    return there[0] if len(there) == 1 and DEFAULT_NAME not in there else DEFAULT_NAME


@dataclass(frozen=True)
class Layout:
    """Paths below the cluster's directory."""

    root: Path

    @property
    def spec(self) -> Path:
        """Ports and options, written once when the cluster is made."""
        return self.root / "cluster.json"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.root / "kubeconfig"

    @property
    def pki(self) -> Path:
        """Keys and certificates."""
        return self.root / "pki"

    @property
    def etcd_pki(self) -> Path:
        """Keys and certificates of etcd, by an authority of its own: it lets in whoever has a certificate of that."""
        return self.pki / "etcd"

    @property
    def run(self) -> Path:
        """One file per process: its id and when it started."""
        return self.root / "run"

    @property
    def logs(self) -> Path:
        """One file per process."""
        return self.root / "logs"

    @property
    def etcd(self) -> Path:
        """The data of etcd."""
        return self.root / "etcd"

    @property
    def audit_log(self) -> Path:
        """One JSON line per API request, when the cluster was made with auditing."""
        return self.root / "audit.log"

    @property
    def audit_policy(self) -> Path:
        """What the API server writes there."""
        return self.root / "audit-policy.yaml"

    @property
    def stages(self) -> Path:
        """The configuration of kwok: how simulated pods and nodes live."""
        return self.root / "kwok.yaml"

    @property
    def models(self) -> Path:
        """What kind's nodes see as /var/lib/ome/models."""
        return self.root / "models"

    @property
    def prometheus(self) -> Path:
        """Configuration and data of Prometheus, where the cluster has it."""
        return self.root / "prometheus"

    @property
    def tokens(self) -> Path:
        """Requests for ServiceAccount tokens, the tokens, and kubeconfigs that use them."""
        return self.root / "tokens"

    def component_kubeconfig(self, user: str) -> Path:
        """The kubeconfig of one component's own identity."""
        return self.pki / f"{user}.kubeconfig"

    def make(self) -> None:
        """Create the directories; only the owner may look into them, since keys lie here."""
        for path in (self.root, self.pki, self.etcd_pki, self.run, self.logs, self.tokens):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
