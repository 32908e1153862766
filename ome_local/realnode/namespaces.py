"""The node's namespaces, its bridge, and the network link between this machine and the bridge.

One process holds the namespaces, and the node's programs enter them. When the last of these processes ends, the bridge, the
rules and the mounts disappear.
"""

import contextlib
import ipaddress
import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from ome_local import processes
from ome_local.layout import Layout
from ome_local.realnode import cgroups
from ome_local.realnode.requirements import PATH
from ome_local.realnode.spec import COMPONENTS, NUMBERS, SPACE, Network, RealNode, link_name
from ome_operator.errors import UserError

MACHINE = Path("/run")
"""Folder with a lock. A process holds the lock from the choice of the node's addresses until the link exists."""
_WITHIN_S = 60.0
"""Time within which the namespaces must exist. 10 s were not enough on two cores that compiled programs at the same time
(load average 13)."""


def choose(at: Layout, kept: Collection[int]) -> Network:
    """Choose addresses for a new cluster that no other network of this machine uses. `kept` contains the network numbers
    of other clusters, which may be stopped.
    """
    if hidden := next((path for path in ("/run", "/var/run", "/var/log") if at.root.is_relative_to(path)), None):
        raise UserError(
            f"A real node mounts its own folder over {hidden}: set OME_LOCAL_HOME to a folder that is not below {hidden}."
        )
    return free_network(_routes(), kept)


def free_network(routes: Iterable[str], kept: Collection[int]) -> Network:
    """Return the network with the first number that is not in `kept` and whose address ranges overlap no route. Raises
    UserError if there is none.
    """
    known = [ipaddress.ip_network(route) for route in routes]
    for network in map(Network, NUMBERS):
        own = [ipaddress.ip_network(text) for text in (network.pods, network.services)]
        if network.number not in kept and not any(mine.overlaps(other) for mine in own for other in known):
            return network
    raise UserError(
        "A real node needs a free range in 10.244.0.0/16 and one in 10.96.0.0/10, but routes of this machine use all "
        "of them: remove routes that are not needed."
    )


def open_(node: RealNode) -> None:
    """Create the namespaces and the link unless they already exist."""
    if processes.find_process(node.at, SPACE) and _linked(node).exists():
        return
    close(node)
    shutil.rmtree(node.run, ignore_errors=True)  # as after a reboot, containerd must start without containers
    for path, own in node.private_directories.items():
        own.mkdir(parents=True, exist_ok=True)
        Path(path).mkdir(parents=True, exist_ok=True)
    cgroups.make(link_name(node.at.root))
    script = ["sh", "-ec", _inside(node)]
    environment = {"PATH": PATH}
    processes.spawn(node.at, SPACE, ["unshare", "--mount", "--propagation=slave", "--net", "--", *script], environment)
    until = time.monotonic() + _WITHIN_S
    while not (node.run / "opened").exists():
        if processes.find_process(node.at, SPACE) is None:
            raise UserError(f"The process of the real node's namespaces ended. {processes.end_of_log(node.at, SPACE)}")
        if time.monotonic() > until:
            raise UserError(
                f"The namespaces of the real node were not created within {_WITHIN_S:.0f} s. This machine may be too busy: "
                f"run the same command again. {processes.end_of_log(node.at, SPACE)}"
            )
        time.sleep(0.01)
    _link(node)
    _linked(node).touch()


def close(node: RealNode) -> None:
    """Stop the processes in the node's namespaces. The namespaces and the link end with the last process."""
    for name in reversed(COMPONENTS):
        processes.stop_process(node.at, name, grace_s=3.0)
    cgroups.remove(link_name(node.at.root))
    for shim in _inhabitants(node.at):
        shim.signal(signal.SIGKILL)
    unlink(node.at)


def _inhabitants(at: Layout) -> list[processes.Process]:
    """Return the processes of the cluster that are in another network namespace than the current process."""
    here, found = Path("/proc/self/ns/net").readlink(), []
    for process in processes.processes_of_cluster(at):
        with contextlib.suppress(OSError):  # the process has just ended
            if Path(f"/proc/{process.pid}/ns/net").readlink() != here:
                found.append(process)
    return found


def unlink(at: Layout) -> None:
    """Remove the network link between this machine and the node at once. Otherwise the link would exist until the kernel has
    cleaned up the namespace.
    """
    if Path("/sys/class/net", link_name(at.root)).exists():
        _ip("link", "delete", link_name(at.root), check=False)


def has_other_links() -> bool:
    """Return whether this machine has a link of any cluster."""
    return any(Path("/sys/class/net").glob("ome-*"))


def enter(node: RealNode) -> list[str]:
    """Return the beginning of a command line that runs a command inside the node, with this session's maximum number of
    open files.
    """
    holder = processes.find_process(node.at, SPACE)
    if holder is None:
        raise UserError(f"The real node is not up: `ome local up --name {node.at.root.name}` starts it.")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    limit = "unlimited" if files == resource.RLIM_INFINITY else str(files)
    return ["prlimit", f"--nofile={limit}:{limit}", "nsenter", f"--target={holder.pid}", "--mount", "--net", "--"]


def _inside(node: RealNode) -> str:
    """Return the shell script of the process that holds the namespaces. Mounts inside are shared, so that pods can
    propagate their mounts, but no mount propagates to the machine.
    """
    binds = [f"mount --bind {shlex.quote(str(own))} {path}" for path, own in node.private_directories.items()]
    return "\n".join([
        "mount --make-rshared /",
        *binds,
        "ip link set lo up",
        # A fixed address: a bridge would take the address of its newest port, and neighbors would remember the old
        # address.
        f"ip link add cni0 address 02:00:0a:f4:{node.network.number:02x}:01 type bridge",
        f"ip address add {node.gateway}/24 dev cni0",
        "ip link set cni0 up",
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
        "touch /run/opened",
        "exec sleep infinity",
    ])  # fmt: skip


def _link(node: RealNode) -> None:
    """Link the machine with the pod network, and route the addresses of Services through the node."""
    name, holder = link_name(node.at.root), processes.find_process(node.at, SPACE)
    if taken := [route for route in _routes() if ipaddress.ip_network(node.pods).overlaps(ipaddress.ip_network(route))]:
        raise UserError(
            f"The addresses of this cluster's real node, {node.pods}, are in use on this machine (route {taken[0]}): "
            f"free them, or run `ome local down --name {node.at.root.name}` and create the cluster again."
        )
    assert holder is not None
    _ip("link", "add", name, "type", "veth", "peer", "name", "uplink", "netns", str(holder.pid))
    _run(["nsenter", f"--target={holder.pid}", "--net", "ip", "link", "set", "uplink", "master", "cni0", "up"])
    _ip("address", "add", f"{node.host}/24", "dev", name)
    _ip("link", "set", name, "up")
    _ip("route", "add", node.network.services, "via", node.gateway)


def _linked(node: RealNode) -> Path:
    return node.run / "linked"


def _routes() -> list[str]:
    told = json.loads(_ip("-json", "-4", "route", "show") or "[]")
    return [route["dst"] for route in told if route["dst"] != "default"]


def _ip(*words: str, check: bool = True) -> str:
    return _run(["ip", *words], check=check)


def _run(command: list[str], *, check: bool = True) -> str:
    environment = {**os.environ, "PATH": PATH}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if check and done.returncode:
        raise UserError(f"`{shlex.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout
