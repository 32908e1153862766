"""Create, start and remove a kind cluster. The kubeconfig is written last; a cluster without kubeconfig is incomplete."""

import os
import shutil
import time

from ome_local import processes, spec
from ome_local.kind import config
from ome_local.kind.program import run, why_not
from ome_local.kubeapi import ApiError, ApiUnreachable, KubeApi
from ome_local.layout import Layout
from ome_local.progress import step
from ome_operator.errors import UserError

IMAGE = "OME_KIND_IMAGE"
"""Environment variable with the node image, for mirrors and machines without internet access. If it is not set, kind uses
its default image."""
_READY_WITHIN_S = 120.0
_GONE_WITHIN_S = 60.0
_LABEL = "io.x-k8s.kind.cluster"
"""Label that kind puts on its containers, with the name of the cluster."""


def start(at: Layout, workers: int) -> None:
    """Create the cluster with kind's default version of Kubernetes, or start the stopped containers of an existing
    cluster.

    The kubeconfig is written to the cluster's directory, never to ~/.kube.
    """
    there, complete = config.name(at) in run(["kind", "get", "clusters"]).stdout.split(), at.kubeconfig.exists()
    if there and complete:
        _wake(at)
        return
    if there:
        with step("removing an incomplete kind cluster"):
            _delete(at)
    if complete:  # the cluster was removed with kind itself, and this package's processes still use its kubeconfig
        processes.end_all(at)
    _create(at, workers)


def _create(at: Layout, workers: int) -> None:
    at.models.mkdir(exist_ok=True)  # otherwise Docker creates the folder as root
    at.models.chmod(0o755)
    beside = at.root / "kubeconfig.new"
    beside.unlink(missing_ok=True)  # kind would append to the file of an interrupted creation
    which = ["--name", config.name(at), "--kubeconfig", str(beside)]
    image = ["--image", named] if (named := os.environ.get(IMAGE)) else []
    with step("creating a kind cluster"):
        command = ["kind", "create", "cluster", *which, "--config", "-", "--wait", "120s", *image]
        run(command, said=config.cluster(at, workers))
    beside.chmod(0o600)
    beside.replace(at.kubeconfig)


def _wake(at: Layout) -> None:
    """Start containers that were stopped by a user or a restart of the machine. The control plane is started first, so
    that it keeps its address.
    """
    if stopped := sorted(containers(at, "exited")):
        with step("starting the containers of kind"):
            run(["docker", "start", *stopped])
            _wait_ready(at)


def containers(at: Layout, state: str = "") -> list[str]:
    """Return the names of the cluster's containers, which are its nodes. If `state` is not "", only containers in this
    Docker state are returned.
    """
    only = ["--filter", f"status={state}"] if state else []
    words = ["--all", "--filter", f"label={_LABEL}={config.name(at)}", *only, "--format", "{{.Names}}"]
    return run(["docker", "ps", *words]).stdout.split()


def _wait_ready(at: Layout) -> None:
    until, api = time.monotonic() + _READY_WITHIN_S, KubeApi.of(at.kubeconfig, timeout=5.0)
    while not _ready(api):
        if time.monotonic() > until:
            node = config.control_plane(at)
            raise UserError(
                f"Kind's API server is not ready after {_READY_WITHIN_S:.0f} s: `docker logs {node}` shows more."
            )
        time.sleep(0.2)
    api.close()


def _ready(api: KubeApi) -> bool:
    try:
        return bool(api.get("/readyz") == "ok")
    except (ApiError, ApiUnreachable):
        return False


def is_ours(at: Layout) -> bool:
    """Return whether this directory belongs to a kind cluster. If cluster.json cannot be read, return true unless the
    directory contains a certificate authority of this package.
    """
    try:
        kept = spec.load(at)
    except UserError:
        return not (at.pki / "ca.key").exists() and shutil.which("kind") is not None
    return kept is not None and kept.spec.kind


def require_removal(at: Layout) -> None:
    """Raise UserError if the kind cluster cannot be removed now, because removing only the files would leave its containers
    behind. The function is called before anything is removed.
    """
    if reason := why_not():
        raise UserError(
            f"Cluster {at.root.name} runs in Docker and was created by kind, but {reason}, so nothing was removed: once "
            f"both are available, run `ome local down --name {at.root.name}`."
        )


def remove(at: Layout) -> None:
    """Delete the kind cluster with its containers and volumes."""
    _delete(at)


def _delete(at: Layout) -> None:
    """Delete the kind cluster repeatedly until none of its containers exists, because a deletion silently does nothing while
    Docker is creating a container.
    """
    until = time.monotonic() + _GONE_WITHIN_S
    while True:
        run(["kind", "delete", "cluster", "--name", config.name(at), "--kubeconfig", str(at.kubeconfig)])
        if not (left := containers(at)):
            return
        if time.monotonic() > until:
            raise UserError(
                f"Docker still has {', '.join(left)} after {_GONE_WITHIN_S:.0f} s: remove them with `docker rm -f`."
            )
        time.sleep(0.3)
