"""The two services of the demo. They are applied as a user would apply them, and watched until they are ready."""

from collections.abc import Callable
from typing import NamedTuple

from ome_local import cancel
from ome_local.cluster import Cluster
from ome_local.demo import live_view, operator
from ome_local.demo.command import command
from ome_local.demo.view import View, view
from ome_local.kubeapi import ApiError, ApiUnreachable
from ome_operator.errors import UserError
from ome_operator.util.checkout import shipped_folder


class Service(NamedTuple):
    """A service of the demo."""

    name: str
    """Name of the service, of its namespace and of its model."""
    files: tuple[str, ...]


KIMI = Service(
    "kimi-k2-instruct",
    (
        "config/models/moonshotai/Kimi-K2-Instruct.yaml",
        "config/runtimes/srt/kimi-k2-pd-rt.yaml",
        "config/samples/isvc/moonshotai/kimi-k2-pd.yaml",
    ),
)
TINY = Service(
    "kimi-k2-tiny",
    (
        "config/models/ome/Kimi-K2-Tiny.yaml",
        "config/runtimes/srt/kimi-k2-tiny-pd-cpu-rt.yaml",
        "config/samples/isvc/ome/kimi-k2-tiny-pd.yaml",
    ),
)
_KINDS = (("StatefulSet", "apps"), ("Deployment", "apps"), ("Pod", ""), ("Service", ""), ("PodDisruptionBudget", "policy"))
"""Kinds of the objects that are counted for a service, with their API groups. Objects that Kubernetes creates
automatically are not included."""


def label_nodes(cluster: Cluster, service: Service, *nodes: str) -> None:
    """Label these nodes as nodes that have the model's files."""
    label = f"models.ome.io/clusterbasemodel.{service.name}=Ready"
    cluster.kubectl("label", "node", *nodes, "--overwrite", label)
    print(
        (f"  kubectl label node {' '.join(nodes)} {label}  (done by the demo, because no model agent runs here)"), flush=True
    )


def serve(cluster: Cluster, service: Service, within_s: float) -> None:
    """Apply the service's files, and show the service until it is ready or `within_s` seconds have passed."""
    for file in service.files:
        print(f"  kubectl apply -f {file}", flush=True)
        cluster.kubectl("apply", "-f", str(shipped_folder("config").parent / file))
        cancel.pause(0.0)
    seen = live_view.until_ready(looker(cluster, service), within_s, lambda: cluster.process(operator.NAME) is not None)
    if not seen.ready:
        raise UserError(_trouble(cluster, service, seen, within_s))


def looker(cluster: Cluster, service: Service) -> Callable[[], View]:
    """Return a function that returns the current view of the service. If the API server does not respond, the function
    returns the last view.
    """
    api, last = cluster.api(), view({"metadata": {"name": service.name}})
    path = f"/apis/ome.io/v1beta1/namespaces/{service.name}/inferenceservices/{service.name}"

    def look() -> View:
        nonlocal last
        try:
            last = view(api.get(path))
        except (ApiError, ApiUnreachable):
            return last
        return last

    return look


def created(cluster: Cluster, service: Service) -> str:
    """Return a text with the number of objects of each kind that exist for the service."""
    words = [f"{kind.lower()}s.{group}" if group else f"{kind.lower()}s" for kind, group in _KINDS]
    names = cluster.kubectl("get", ",".join(words), "-n", service.name, "-o", "name").splitlines()
    found = [name.split("/")[0].split(".")[0] for name in names]
    pairs = [(found.count(kind.lower()), kind) for kind, _ in _KINDS]
    return ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for count, kind in pairs if count)


def _trouble(cluster: Cluster, service: Service, seen: View, within_s: float) -> str:
    ended = cluster.process(operator.NAME) is None
    late = f"Not ready after {within_s:.0f} s: {', '.join(seen.missing_items()) or service.name}"
    first = "The operator ended" if ended else late
    said = f"\n  {seen.why}" if seen.why else ""
    ome = command()
    longer = f"{ome} demo --name {cluster.name} --timeout {3 * within_s:.0f}"
    again = f"\nThe pods continue to start, and a busy machine needs more time. To wait again, and longer:\n  {longer}"
    return (
        f"{first}.{said}{'' if ended else again}\nWhere to look:\n"
        f"  {ome} local kubectl --name {cluster.name} describe isvc -n {service.name}\n"
        f"  {ome} local kubectl --name {cluster.name} get pods,events -n {service.name}\n"
        f"  {ome} local logs operator --name {cluster.name}"
    )
