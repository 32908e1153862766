"""Faults of the operator's process."""

import signal
from collections.abc import Iterator

from tests.controlplane.alerts.conftest import Bed
from tests.controlplane.alerts.faults.known import fault


@fault("OmeNobodyLeads")
def _(bed: Bed) -> Iterator[None]:
    """The operator is killed, and no other operator runs."""
    bed.rig.stop(signal.SIGKILL)
    yield
    bed.operate()


@fault("OmeNamespaceNotWatched")
def _(bed: Bed) -> Iterator[None]:
    """The operator is configured to watch a namespace that does not exist."""
    there, absent = bed.namespace(), "not-there"
    bed.later(bed.rig.delete, "Namespace", "", absent)
    bed.later(bed.operate)
    bed.later(bed.rig.install)
    bed.rig.install(f"watchNamespaces={{{there}}}")
    bed.operate("--watch-namespace", there, "--watch-namespace", absent)
    yield
    bed.rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": absent}})
    bed.rig.install(f"watchNamespaces={{{there},{absent}}}")
    bed.rig.wait("it is watched", lambda: bed.asked.ask(f'ome_namespace_watched{{namespace="{absent}"}} == 1'), 60)


@fault("OmeRival")
def _(bed: Bed) -> Iterator[None]:
    """Another operator of the same class runs, with a Lease in another namespace."""
    rig, namespace, port = bed.rig, bed.namespace(), bed.rig.port
    rig.start("rival", "--namespace-of-lease", namespace, kubeconfig=rig.cluster.kubeconfig)
    rig.port = port
    yield
    rig.stop(process="rival")


@fault("OmePoliciesAbsent")
def _(bed: Bed) -> Iterator[None]:
    """The operator has an administrator's kubeconfig, and no admission policy applies to administrators."""
    bed.operate(kubeconfig=bed.rig.cluster.kubeconfig)
    yield
    bed.operate()
