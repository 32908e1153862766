"""The traces that a real node may leave on the machine: network devices, routes, packet rules, mounts, control groups and
processes. They are recorded before and after a test, and compared.

Other nodes may be created and deleted on the machine meanwhile, so traces with the mark of another cluster do not count.
Neither do traces that Docker creates for a container, and values that change by themselves (counters and times).
"""

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from ome_local.processes import MARK, started_at
from ome_local.realnode import cgroups, namespaces
from ome_local.realnode.requirements import PATH
from ome_local.realnode.spec import link_name

_SHARED = ("/var/lib/cni", "/var/lib/kubelet")
"""Directories that exist while any node exists."""
_FOLDERS = ("/etc/cni", "/opt", "/run", "/run/containerd", "/run/netns", "/usr/libexec", "/var/log/containers", *_SHARED)
_ANY = re.compile(r"ome-[0-9a-f]{8}")
_DOCKERS = re.compile(r"/docker|docker-|/moby|^docker0$|^br-[0-9a-f]{12}$|^veth[0-9a-f]{7}$| dev (docker0|br-)")
"""Pattern for Docker's traces in paths of mounts and control groups, names of links, and routes. Names of pods' links are
longer."""
_COUNTS = re.compile(r"\[\d+:\d+\]|packets \d+ bytes \d+")
OTHERS = "there are other nodes, which need them too"


def current_traces(root: Path) -> dict[str, set[str]]:
    """Return all current traces by kind, except the traces of other clusters: the traces of the cluster in this folder, and
    traces that belong to no cluster.
    """
    mounts = Path("/proc/mounts").read_text()
    groups = (folder for top in cgroups.hierarchies(mounts) for folder, _, _ in os.walk(top))
    found = {
        "links": not_dockers(path.name for path in Path("/sys/class/net").iterdir()),
        "routes": not_dockers(_told("ip", "-4", "route", "show")),
        "rules": rules([*_told("nft", "list", "ruleset"), *_told("iptables-save")]),
        "mounts": not_dockers(one for one in mounts.splitlines() if any(word in one for word in (str(root), *_FOLDERS))),
        "control groups": not_dockers(
            one for one in groups if ("kubepods" in one or "ome-" in one) and not is_probe_group(one)
        ),
        "folders": {str(path) for folder in map(Path, _FOLDERS) if folder.is_dir() for path in folder.iterdir()},
        "mount points": {OTHERS} if namespaces.has_other_links() else {path for path in _SHARED if Path(path).exists()},
        "processes": set(_of(root)),
        "forwarding": {Path("/proc/sys/net/ipv4/ip_forward").read_text()},
    }
    others = {name for all_ in found.values() for one in all_ for name in _ANY.findall(one)} - {link_name(root)}
    return {kind: {one for one in all_ if others.isdisjoint(_ANY.findall(one))} for kind, all_ in found.items()}


def changed_traces(before: dict[str, set[str]], after: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the traces that changed, by kind; empty if nothing changed."""
    changed = {kind: before[kind] ^ after[kind] for kind in before if before[kind] != after[kind]}
    return {kind: which for kind, which in changed.items() if OTHERS not in before[kind] | after[kind]}


def rules(listing: Iterable[str]) -> set[str]:
    """Return packet rules from the output of `nft` and `iptables-save`, without timestamps and counters."""
    return {_COUNTS.sub("", line).strip() for line in listing if not line.lstrip().startswith("#")}


def is_probe_group(group: str) -> bool:
    """Return whether a control group was created by a running program, such as another `ome local up`, only to test whether
    the program can create control groups.
    """
    found = re.search(r"/ome-probe-(\d+)$", group)
    return found is not None and Path(f"/proc/{found[1]}").exists()


def not_dockers(found: Iterable[str]) -> set[str]:
    """Return the traces without those that Docker created for a container. The nodes of a kind cluster, which may run on the
    same machine, are such containers.
    """
    return {one for one in found if not _DOCKERS.search(one)}


def _told(*command: str) -> list[str]:
    try:
        environment = {**os.environ, "PATH": PATH}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment).stdout.splitlines()
    except FileNotFoundError:
        return []


def _of(root: Path) -> list[str]:
    """Return the processes that the cluster started, and those in its control groups, which are its containers."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            started_by_it = f"{MARK}={root}".encode() in (folder / "environ").read_bytes().split(b"\0")
            if started_by_it or f"/{link_name(root)}/" in (folder / "cgroup").read_text():
                found.append(f"{folder.name} {started_at(int(folder.name))} {(folder / 'comm').read_text().strip()}")
        except OSError:
            continue  # the process has just ended
    return found
