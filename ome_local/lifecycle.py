"""Start and remove a cluster. Both operations can be repeated safely."""

import contextlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ome_local import bootstrap, creation, keda, kueue, layout, nodes, options, processes, prometheus, servers, spec
from ome_local.binaries import debian, ensure, versions
from ome_local.cancel import side_by_side
from ome_local.components import SERVERS
from ome_local.kind import config, furnish, life, program
from ome_local.kubeapi import KubeApi
from ome_local.layout import Layout
from ome_local.lock import locked
from ome_local.progress import step
from ome_local.realnode import image_cache, namespaces, remove, requirements
from ome_local.realnode import start as real
from ome_local.realnode.spec import RealNode
from ome_local.spec import ClusterFile, Spec
from ome_operator.errors import UserError

VERSION = "OME_KUBERNETES"
"""Environment variable with the Kubernetes version of new clusters."""


def up(at: Layout, wanted: Spec, *, join: bool = True) -> ClusterFile:
    """Create the cluster if it does not exist, start components and spawned processes that are not running, and add
    missing nodes.

    If `join` is false, the real node can load images but runs no pods, because its programs may still be missing. A later
    `up` starts these programs.
    """
    nodes.simulated(wanted.accelerator, 0, wanted.gpus_per_node)  # refuse a wrong name before anything starts
    made = spec.load(at)
    wanted = replace(wanted, kubernetes=_version(made, wanted))
    options.check(at.root.name, made, wanted)
    if made and not made.spec.kind and not (at.etcd_pki / "ca.crt").exists():
        raise UserError(
            f"Cluster {at.root.name} was created by an earlier version, and every user of this machine can access its "
            f"etcd: remove the cluster with `ome local down --name {at.root.name}`, and create it again with `ome local "
            "up`."
        )
    besides = _extras(wanted, made.spec if made else wanted)
    had = replace(made.spec if made else wanted, kubernetes=wanted.kubernetes, **besides)
    if had.kind:
        program.require()
    if had.real_node:
        requirements.require()
    ensure.ensure(programs(had, join=join), had.version)
    if had.prometheus:
        debian.prometheus()
    if had.kueue:
        kueue.program()
    if had.keda:
        keda.programs()
    with locked(at.root, create=True):
        with locked(namespaces.MACHINE, create=False) if had.real_node else contextlib.nullcontext():
            kept = _settle(at, wanted)
            if made and made.spec.version != kept.spec.version:
                _end_servers(at)
            if kept.network:
                namespaces.open_(RealNode(at, kept.network))
        with step(f"starting cluster {at.root.name}", quiet_below=0.3):
            api = _start(at, kept, real.up if join else real.take_images)
            bootstrap.add_nodes(at, _nodes_of(kept))
            joined = kept.spec.real_node and join
            bootstrap.wait_usable(api, kept.spec.nodes + joined + len(_of_kind(at, kept)))
            processes.restart_ended(at)
            api.close()
    return kept


def _extras(wanted: Spec, kept: Spec) -> dict[str, Any]:
    """Return the optional programs that the cluster already has, or that `wanted` adds, as fields of Spec."""
    return {extra: getattr(wanted, extra) or getattr(kept, extra) for extra in options.EXTRAS}


def _version(cluster_file: ClusterFile | None, wanted: Spec) -> str:
    """Return the Kubernetes version: the requested version, otherwise the version of the existing cluster. For a new cluster
    without real nodes, as in tests, $OME_KUBERNETES is used if it is set. `cluster_file` describes the existing cluster;
    None for a new one.
    """
    if wanted.kubernetes or cluster_file:
        return versions.kubernetes(wanted.kubernetes or (cluster_file.spec.version if cluster_file else ""))
    usual = versions.KUBERNETES
    return usual if wanted.kind or wanted.real_node else versions.kubernetes(os.environ.get(VERSION, usual))


def _end_servers(at: Layout) -> None:
    """Stop the components whose Kubernetes version changes; etcd is not among them, and the API server is stopped last."""
    for name in ("scheduler", "controller-manager", servers.SECOND, "apiserver"):
        processes.stop_process(at, name)


def programs(made: Spec, *, join: bool = True) -> Sequence[str]:
    """Return the programs that `up` has to download or build. If `join` is false, the real node does not join the cluster,
    and its programs are left out.
    """
    if made.kind:
        return versions.CLIENTS
    return [*versions.CONTROL_PLANE, *(versions.NODE if made.real_node and join else ())]


def _settle(at: Layout, wanted: Spec) -> ClusterFile:
    """Write the settings of the cluster to cluster.json, and return them. Settings of an existing cluster take precedence,
    with these exceptions: simulated nodes and optional programs can be added, the Kubernetes version can change, and the
    accelerator and the GPUs per node can be chosen while the cluster has no simulated nodes.
    """
    kept = spec.load(at) or creation.create(at, wanted)
    changed = kept.with_spec(
        nodes=max(kept.spec.nodes, wanted.nodes),
        accelerator=wanted.accelerator if not kept.spec.nodes else kept.spec.accelerator,
        gpus_per_node=wanted.gpus_per_node if not kept.spec.nodes else kept.spec.gpus_per_node,
        kubernetes=wanted.kubernetes,
        **_extras(wanted, kept.spec),
    )
    if changed.spec.kueue and not kept.spec.kueue:
        creation.write_stages(at, changed.spec)
        processes.stop_process(at, "kwok")  # kwok reads the Stages only at its start
    if changed != kept:
        spec.save(at, changed)
    return changed


def _start(at: Layout, cluster_file: ClusterFile, start_node: Callable[[RealNode], None]) -> KubeApi:
    """Start etcd, then the API server, then all other components at the same time."""
    if cluster_file.spec.kind:
        life.start(at, cluster_file.spec.workers)
        names = ["kwok", "tokens"]
    else:
        for name in ("etcd", "apiserver"):
            servers.start(at, cluster_file, name)
        names = list(SERVERS[2:])
    api = KubeApi.of(at.kubeconfig)
    bootstrap.grant(api)
    if cluster_file.spec.kind:
        furnish.spare(api, _of_kind(at, cluster_file))
        furnish.keep_addons(api)
    if cluster_file.spec.prometheus:
        bootstrap.grant_targets(api)
        names += prometheus.PROCESSES
    if cluster_file.spec.kueue:
        kueue.define(api, at, cluster_file)
        names.append(kueue.NAME)
    if cluster_file.spec.keda:
        keda.define(api)
        names += keda.PROCESSES
    jobs = [partial(servers.start, at, cluster_file, name) for name in names]
    if cluster_file.network:
        bootstrap.grant_names(api)
        jobs.append(partial(start_node, RealNode(at, cluster_file.network)))
    side_by_side(lambda job: job(), jobs)
    if cluster_file.spec.kueue:
        kueue.route(api, at, cluster_file)
    if cluster_file.spec.keda:
        keda.route(api, at, cluster_file)
    return api


def _nodes_of(cluster_file: ClusterFile) -> list[nodes.Manifest]:
    made = cluster_file.spec
    return nodes.simulated(made.accelerator, made.nodes, made.gpus_per_node, addresses=not made.kind)


def _of_kind(at: Layout, cluster_file: ClusterFile) -> tuple[str, ...]:
    """Return the names of kind's nodes that run pods."""
    return config.real_nodes(at, cluster_file.spec.workers) if cluster_file.spec.kind else ()


def down(at: Layout) -> bool:
    """Stop every process of the cluster and remove its directory. Return False if there was nothing to remove."""
    with locked(at.root, create=False) as there:
        if not there:
            return False
        if with_kind := life.is_ours(at):
            life.require_removal(at)
        image_cache.store_images(at)
        processes.end_all(at)
        remove.take_away(at)
        if with_kind:
            life.remove(at)
        _remove(at.root)
    if layout.home_is_ours():
        for parent in (at.root.parent, at.root.parent.parent):
            with contextlib.suppress(OSError):  # the folder contains other files
                parent.rmdir()
    return True


def _remove(root: Path) -> None:
    """Remove the directory. cluster.json is removed first: a directory without this file is not a cluster, even if the
    removal is interrupted.
    """
    (root / "cluster.json").unlink(missing_ok=True)
    shutil.rmtree(root)
