"""What a real node could leave on the machine: taken before and after, to be compared.

Other nodes may come and go on the machine meanwhile: what carries another cluster's mark does not count. Neither does what
Docker makes for a container, nor what changes while nobody does anything: counters and times.
"""

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from ome_local.processes import MARK, started_at
from ome_local.realnode import cgroups, namespaces
from ome_local.realnode.requirements import PATH
from ome_local.realnode.spec import mark

_SHARED = ("/var/lib/cni", "/var/lib/kubelet")
"""There as long as any node is."""
_FOLDERS = ("/etc/cni", "/opt", "/run", "/run/containerd", "/run/netns", "/usr/libexec", "/var/log/containers", *_SHARED)
_ANY = re.compile(r"ome-[0-9a-f]{8}")
_DOCKERS = re.compile(r"/docker|docker-|/moby|^docker0$|^br-[0-9a-f]{12}$|^veth[0-9a-f]{7}$| dev (docker0|br-)")
"""In paths of mounts and control groups, names of links, and routes. Names of pods' links are longer."""
_COUNTS = re.compile(r"\[\d+:\d+\]|packets \d+ bytes \d+")
OTHERS = "there are other nodes, which need them too"


def taken(root: Path) -> dict[str, set[str]]:
    """Kind of trace → every trace there is now, of the cluster in this folder or of nobody in particular."""
    mounts = Path("/proc/mounts").read_text()
    groups = (folder for top in cgroups.hierarchies(mounts) for folder, _, _ in os.walk(top))
    found = {
        "links": not_dockers(path.name for path in Path("/sys/class/net").iterdir()),
        "routes": not_dockers(_told("ip", "-4", "route", "show")),
        "rules": rules([*_told("nft", "list", "ruleset"), *_told("iptables-save")]),
        "mounts": not_dockers(one for one in mounts.splitlines() if any(word in one for word in (str(root), *_FOLDERS))),
        "control groups": not_dockers(one for one in groups if ("kubepods" in one or "ome-" in one) and not probed(one)),
        "folders": {str(path) for folder in map(Path, _FOLDERS) if folder.is_dir() for path in folder.iterdir()},
        "mount points": {OTHERS} if namespaces.others() else {path for path in _SHARED if Path(path).exists()},
        "processes": set(_of(root)),
        "forwarding": {Path("/proc/sys/net/ipv4/ip_forward").read_text()},
    }
    others = {name for all_ in found.values() for one in all_ for name in _ANY.findall(one)} - {mark(root)}
    return {kind: {one for one in all_ if others.isdisjoint(_ANY.findall(one))} for kind, all_ in found.items()}


def left(before: dict[str, set[str]], after: dict[str, set[str]]) -> dict[str, set[str]]:
    """What changed, by kind; empty when nothing did."""
    changed = {kind: before[kind] ^ after[kind] for kind in before if before[kind] != after[kind]}
    return {kind: which for kind, which in changed.items() if OTHERS not in before[kind] | after[kind]}


def rules(told: Iterable[str]) -> set[str]:
    """Packet rules as `nft` and `iptables-save` tell them, without the time at which they were told and without counts."""
    return {_COUNTS.sub("", line).strip() for line in told if not line.lstrip().startswith("#")}


def probed(group: str) -> bool:
    """Whether a program that runs, such as another `up`, only tries whether it may make control groups."""
    found = re.search(r"/ome-probe-(\d+)$", group)
    return found is not None and Path(f"/proc/{found[1]}").exists()


def not_dockers(found: Iterable[str]) -> set[str]:
    """What Docker did not make for a container: a cluster of kind beside us lives in such containers."""
    return {one for one in found if not _DOCKERS.search(one)}


def _told(*command: str) -> list[str]:
    try:
        environment = {**os.environ, "PATH": PATH}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment).stdout.splitlines()
    except FileNotFoundError:
        return []


def _of(root: Path) -> list[str]:
    """Processes that the cluster started, and those in its control groups, which are its containers'."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            started_by_it = f"{MARK}={root}".encode() in (folder / "environ").read_bytes().split(b"\0")
            if started_by_it or f"/{mark(root)}/" in (folder / "cgroup").read_text():
                found.append(f"{folder.name} {started_at(int(folder.name))} {(folder / 'comm').read_text().strip()}")
        except OSError:
            continue  # just gone
    return found
