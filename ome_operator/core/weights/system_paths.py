"""Directories of nodes that belong to the operating system or to Kubernetes, and therefore contain no weights.

A pod that mounts such a directory can read the files of the node, for example its credentials. Files of a model below
such a directory would mix with the files of the system.
"""

from posixpath import normpath

SYSTEM = (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/root/.aws",
    "/root/.docker", "/root/.kube", "/root/.ssh", "/run", "/sbin",
    "/sys", "/usr", "/var/lib/cni", "/var/lib/containerd", "/var/lib/containers", "/var/lib/crio",
    "/var/lib/docker", "/var/lib/dpkg", "/var/lib/etcd", "/var/lib/kubelet", "/var/lib/rancher",
    "/var/lib/rpm", "/var/lib/systemd", "/var/lock", "/var/log", "/var/run", "/var/spool",
)  # fmt: skip
_MEMORY = "/dev/shm/"
"""A file system in memory. The operating system does not own its directories, so weights may be stored in them."""


def system_directory(path: str) -> str:
    """Return the directory of the operating system that a path names, is inside of, or contains; "" if there is none. `path`
    is absolute.
    """
    place = normpath(f"/{path.lstrip('/')}")
    if place.startswith(_MEMORY):
        return ""
    inside = f"{place.rstrip('/')}/"
    return next((each for each in SYSTEM if inside.startswith(f"{each}/") or each.startswith(inside)), "")
