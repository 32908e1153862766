"""The paths of a cluster. All files of a cluster are in one directory, which `down` removes."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ome_operator.errors import UserError

DEFAULT_NAME = "ome"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


def clusters_home() -> Path:
    """Return the folder $OME_LOCAL_HOME, or the user's default folder for application state. The folder contains a
    directory for each cluster.
    """
    if own := os.environ.get("OME_LOCAL_HOME"):
        return Path(own)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "ome" / "clusters"


def home_is_ours() -> bool:
    """Return whether the home folder is the default folder, which may be removed if it is empty."""
    return "OME_LOCAL_HOME" not in os.environ


def layout(name: str) -> "Layout":
    """Return the paths of the cluster of this name, which may not exist yet. Raises UserError for an invalid name."""
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{name!r} is not a valid name of a cluster: write at most 40 of the characters a-z, 0-9 and -, without a - at "
            "the start or end."
        )
    return Layout(clusters_home().absolute() / name)


def known_clusters() -> list[str]:
    """Return the names of the existing clusters."""
    return sorted(path.parent.name for path in clusters_home().glob("*/cluster.json"))


def choose_cluster(name: str | None) -> str:
    """Return `name` if it is given; otherwise the name of the only existing cluster, or DEFAULT_NAME if no cluster or
    several clusters exist.
    """
    if name is not None:
        return name
    there = known_clusters()
    return there[0] if len(there) == 1 and DEFAULT_NAME not in there else DEFAULT_NAME


@dataclass(frozen=True)
class Layout:
    """The paths in the directory of one cluster."""

    root: Path

    @property
    def spec(self) -> Path:
        """File with the cluster's ports and options. It is written when the cluster is created."""
        return self.root / "cluster.json"

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig file of the administrator."""
        return self.root / "kubeconfig"

    @property
    def pki(self) -> Path:
        """Folder with keys and certificates."""
        return self.root / "pki"

    @property
    def etcd_pki(self) -> Path:
        """Folder with etcd's keys and certificates. etcd has its own CA, because it accepts every client certificate that
        its CA signed.
        """
        return self.pki / "etcd"

    @property
    def run(self) -> Path:
        """Folder with a file for each process, which contains the process ID and the start time."""
        return self.root / "run"

    @property
    def logs(self) -> Path:
        """Folder with a log file for each process."""
        return self.root / "logs"

    @property
    def etcd(self) -> Path:
        """Folder with etcd's data."""
        return self.root / "etcd"

    @property
    def audit_log(self) -> Path:
        """Log file with a JSON line for each API request; it exists only if the cluster was created with auditing."""
        return self.root / "audit.log"

    @property
    def audit_policy(self) -> Path:
        """File with the policy that selects which requests the API server writes to the audit log."""
        return self.root / "audit-policy.yaml"

    @property
    def stages(self) -> Path:
        """Configuration file of kwok, which contains the Stages of simulated pods and nodes."""
        return self.root / "kwok.yaml"

    @property
    def models(self) -> Path:
        """Folder that is /var/lib/ome/models on kind's nodes."""
        return self.root / "models"

    @property
    def prometheus(self) -> Path:
        """Folder with the configuration and data of Prometheus, if the cluster has Prometheus."""
        return self.root / "prometheus"

    @property
    def kueue(self) -> Path:
        """Folder with the configuration and the certificates of Kueue, if the cluster has Kueue."""
        return self.root / "kueue"

    @property
    def keda(self) -> Path:
        """Folder with the certificates of KEDA, if the cluster has KEDA."""
        return self.root / "keda"

    @property
    def front_pki(self) -> Path:
        """Folder with the certificate with which the API server forwards requests to other API servers, such as KEDA's
        adapter. The authority that signs it signs nothing else.
        """
        return self.root / "front-pki"

    @property
    def tokens(self) -> Path:
        """Folder with the requests for ServiceAccount tokens, the tokens, and the kubeconfigs that use them."""
        return self.root / "tokens"

    def component_kubeconfig(self, user: str) -> Path:
        """Return the path of the kubeconfig with the identity of the component `user`."""
        return self.pki / f"{user}.kubeconfig"

    def make(self) -> None:
        """Create the directories with access for the owner only, because they contain keys."""
        for path in (self.root, self.pki, self.etcd_pki, self.front_pki, self.run, self.logs, self.tokens):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
