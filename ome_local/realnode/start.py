"""Start the node's programs, and wait until they serve requests."""

import os
import time
from collections.abc import Callable

from ome_local import ports, processes, servers
from ome_local.binaries import ensure
from ome_local.cancel import side_by_side
from ome_local.kubeconfig import write_atomically
from ome_local.layout import Layout
from ome_local.realnode import configs, image_cache, images, namespaces, requirements
from ome_local.realnode.spec import LABEL, SPACE, RealNode
from ome_operator.errors import UserError

_PORTS = {"kubelet": 10250, "coredns": 8181}
"""Maps the name of a process to its port on the node's address. No other program uses these ports."""


def up(node: RealNode) -> None:
    """Start all processes except the process that holds the namespaces, which must be started before the API server."""
    take_images(node)
    images.load_pause(node)
    side_by_side(lambda name: start(node, name), ("kubelet", "kube-proxy", "coredns"))


def take_images(node: RealNode) -> None:
    """Start containerd with the cached images. containerd comes from Debian, so this step does not wait for programs that
    are built from source.
    """
    image_cache.restore_images(node)
    start(node, "containerd")


def start(node: RealNode, name: str) -> None:
    """Start a process unless it is running, and wait until it serves requests."""
    if name == SPACE:
        namespaces.open_(node)
        return
    if processes.find_process(node.at, name) is None:
        _write(node)
        _wait_closed(node, name)
        _spawn(node, name)
    served: dict[str, Callable[[], bool]] = {
        "containerd": lambda: _answers(node),
        "kubelet": lambda: _has_begun(node),
        "coredns": lambda: _resolves(node),
    }
    if name in served:
        servers.wait_until_served(node.at, name, served[name], "serve")


def _spawn(node: RealNode, name: str) -> None:
    environment = {"PATH": requirements.PATH, **servers.DIRECT}
    processes.spawn(node.at, name, [*namespaces.enter(node), *command(node, name)], environment)


def command(node: RealNode, name: str) -> list[str]:
    """Return the command line of a program inside the node."""
    at: Layout = node.at
    match name:
        case "containerd":
            return ["containerd", f"--config={node.config / 'containerd.toml'}"]
        case "kubelet":
            return [
                str(ensure.ensure([name])[name]),
                f"--config={node.config / 'kubelet.yaml'}",
                f"--kubeconfig={at.component_kubeconfig(name)}",
                f"--hostname-override={node.name}",
                f"--node-ip={node.gateway}",
                f"--node-labels={LABEL}=true",
            ]
        case "kube-proxy":
            return [str(ensure.ensure([name])[name]), f"--config={node.config / 'kube-proxy.yaml'}"]
        case _:
            return [str(ensure.ensure([name])[name]), "-conf", str(node.config / "Corefile")]


def _write(node: RealNode) -> None:
    folder = requirements.plugins()
    if folder is None:
        raise UserError("The CNI plugins are missing: `ome local up --real-node` installs them again.")
    for name, text in configs.files(node, folder, _memory()).items():
        file = node.config / name
        file.parent.mkdir(parents=True, exist_ok=True)
        # kube-proxy exits whenever its configuration file is written, even if the content stays the same
        if not file.exists() or file.read_text() != text:
            write_atomically(file, text)


def _memory() -> int:
    """Return the memory of the machine in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _answers(node: RealNode) -> bool:
    if not node.socket.exists():
        return False
    try:
        images.image_references(node)
    except UserError:
        return False
    return True


def _has_begun(node: RealNode) -> bool:
    """Return whether the kubelet listens. A kubelet that has exited because containerd had not initialized its services for
    kubelets yet is started again.
    """
    if processes.find_process(node.at, "kubelet") is None and "not initialized yet" in processes.last_words(
        node.at, "kubelet"
    ):
        _spawn(node, "kubelet")
    return _listens(node, "kubelet")


def _wait_closed(node: RealNode, name: str, within_s: float = 5.0) -> None:
    """Wait until the process's port is closed. The port can stay open for a moment after the process was killed: the process
    is already a zombie, but its other threads have not ended yet.
    """
    until = time.monotonic() + within_s
    while name in _PORTS and _listens(node, name) and time.monotonic() < until:
        time.sleep(0.02)


def _listens(node: RealNode, name: str) -> bool:
    return ports.listens(node.gateway, _PORTS[name])


def _resolves(node: RealNode) -> bool:
    return ports.answers_with_200(node.gateway, _PORTS["coredns"], "/ready")
