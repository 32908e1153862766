"""`ome demo`: from nothing to Kimi K2 on 128 simulated GPUs, and to real tokens of a tiny model, in a person's steps.

Every step can be repeated, so a second run reuses what is there.
"""

import http.client
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import ome_operator
from ome_local import layout, spec, tinymodel
from ome_local.cluster import Cluster
from ome_local.demo import live_view, operator
from ome_local.demo.view import View, view
from ome_local.images import build
from ome_local.kubeapi import ApiError, Unreachable
from ome_local.lifecycle import down as take_down
from ome_local.ports import choose
from ome_local.progress import step
from ome_local.realnode import requirements
from ome_operator.errors import UserError
from ome_operator.util.checkout import FOLDERS, checkout, shipped

CLUSTER = "ome-demo"
_START_DELAY_S = 2.5
_PROMPT = {"text": "The future of AI is", "sampling_params": {"max_new_tokens": 16, "temperature": 0}}


class Service(NamedTuple):
    """A service that the demo brings up."""

    name: str
    """Also its namespace and its model."""
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


def run(within_s: float, *, name: str = CLUSTER, kind: bool = False) -> None:
    """Do all of it; a UserError names what did not become ready within the time."""
    check_ours(name)
    for folder in FOLDERS:
        shipped(folder)  # what is missing is said before anything is made
    made = spec.load(layout.layout(name))
    kind = kind or (made is not None and made.spec.kind)
    nowhere = "" if kind else requirements.why_not() or _without_images()
    _heading(1, f"a control plane with 16 simulated nodes of 8 H200 GPUs{'' if nowhere else ', and one real node'}")
    options: dict[str, Any] = {"real_node": not nowhere and not kind, "start_delay_s": _START_DELAY_S, "kind": kind}
    options["demo"] = installation()
    cluster = Cluster.up(name, nodes=16, accelerator="h200", **options)
    _heading(2, "the operator: two charts, and a process with the chart's ServiceAccount")
    operator.install(cluster)
    with step("starting the operator", quiet_below=0.0):
        operator.start(cluster, f"--sidecar-image={build.REFERENCES['operator']}")
    _heading(3, "the nodes are labelled as holding the model")
    _hold(cluster, KIMI, "-l", "type=kwok")
    _heading(4, "three YAML files, and the service")
    _serve(cluster, KIMI, within_s)
    print(_created(cluster))
    if not cluster.real_nodes:
        print(f"No engine ran: the GPU nodes are simulated. {nowhere}")
        print(_farewell(cluster, KIMI))
        return
    _heading(5, "the same kinds with real containers: the published SGLang, of a tiny model, without GPUs")
    _load(cluster)
    _hold(cluster, TINY, *cluster.real_nodes)
    _serve(cluster, TINY, within_s)
    _heading(6, "the request")
    print(_answer(cluster))
    print(_farewell(cluster, TINY))


def remove(name: str = CLUSTER) -> None:
    """End the demo and remove its files."""
    check_ours(name)
    gone = take_down(layout.layout(name))
    print("The demo is gone." if gone else "There is no demo; nothing to do.")


def check_ours(name: str) -> None:
    """Refuse a cluster that another installation's demo made, or that no demo made: it is somebody's work."""
    kept = spec.load(layout.layout(name))
    if kept is None or kept.spec.demo == installation():
        return
    by = f"made by the demo of {kept.spec.demo}" if kept.spec.demo else "not made by this demo"
    option = "" if name == layout.DEFAULT_NAME else f" --name {name}"
    raise UserError(
        f"Cluster {name} was {by}: `ome demo --name OTHER` makes another beside it, `ome local down{option}` ends it."
    )


def installation() -> str:
    """The folder of the packages that run."""
    return str(Path(ome_operator.__file__).resolve().parents[1])


def _without_images() -> str:
    """Why there are no images for a real node, as a sentence; "" in a checkout."""
    try:
        checkout()
    except UserError as error:
        return f"A real node needs images, which are built from images/. {error}"
    return ""


def _hold(cluster: Cluster, service: Service, *nodes: str) -> None:
    label = f"models.ome.io/clusterbasemodel.{service.name}=Ready"
    cluster.kubectl("label", "node", *nodes, "--overwrite", label)
    print(f"  {label}  (a stand-in: no model agent runs here)")


def _load(cluster: Cluster) -> None:
    """Images and weights for the real node; what is there already stays."""
    tinymodel.put(cluster.models / tinymodel.NAME)
    for name, archive in build.build().items():
        with step(f"image {name} into the node"):
            cluster.load_image(archive)


def _serve(cluster: Cluster, service: Service, within_s: float) -> None:
    """Apply the files and show the service until it is ready."""
    for file in service.files:
        print(f"  kubectl apply -f {file}", flush=True)
        cluster.kubectl("apply", "-f", str(shipped("config").parent / file))
    seen = live_view.until_ready(_looker(cluster, service), within_s, lambda: cluster.process(operator.NAME) is not None)
    if not seen.ready:
        raise UserError(_trouble(cluster, service, seen, within_s))


def _answer(cluster: Cluster) -> str:
    """What people do first: a port-forward, and a prompt."""
    port = choose(1)[0]
    words = ["port-forward", "-n", TINY.name, f"service/{TINY.name}"]
    command = [str(cluster.program("kubectl")), *words, f"{port}:80"]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    forward = subprocess.Popen(command, env=cluster.environment(), **streams)
    try:
        assert forward.stdout is not None
        if not (said := forward.stdout.readline()).startswith("Forwarding"):
            raise UserError(f"`kubectl {' '.join(words)} {port}:80` failed: {said.strip()}")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/generate", json.dumps(_PROMPT), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        answer = reply.read().decode()
    except (OSError, http.client.HTTPException) as error:
        raise UserError(f"The service is ready, but a request for tokens failed: {error}") from error
    finally:
        forward.terminate()
        forward.wait()
    if reply.status != 200:
        raise UserError(f"The service is ready, but a request for tokens was answered with {reply.status}: {answer}")
    told = json.loads(answer)
    count, seconds = told["meta_info"]["completion_tokens"], told["meta_info"]["e2e_latency"]
    return (
        f"  kubectl {' '.join(words)} 8080:80\n"
        f"  curl -s http://localhost:8080/generate -H 'Content-Type: application/json' -d '{json.dumps(_PROMPT)}'\n"
        f"  -> {count} tokens in {seconds:.2f} s: {told['text']!r}\n"
        f"  (random weights: what they say is noise; prefill, decode and router are real)"
    )


def _heading(number: int, what: str) -> None:
    print(f"{number}. {what}", flush=True)


def _looker(cluster: Cluster, service: Service) -> Callable[[], View]:
    """Reads the service; while nobody answers, the last view stays."""
    api, last = cluster.api(), view({"metadata": {"name": service.name}})
    path = f"/apis/ome.io/v1beta1/namespaces/{service.name}/inferenceservices/{service.name}"

    def look() -> View:
        nonlocal last
        try:
            last = view(api.get(path))
        except (ApiError, Unreachable):
            return last
        return last

    return look


def _trouble(cluster: Cluster, service: Service, seen: View, within_s: float) -> str:
    ended = cluster.process(operator.NAME) is None
    late = f"Not ready after {within_s:.0f} s: {', '.join(seen.missing()) or service.name}"
    first = "The operator ended" if ended else late
    said = f"\n  {seen.why}" if seen.why else ""
    ome = command()
    return (
        f"{first}.{said}\nWhere to look:\n"
        f"  {ome} local kubectl --name {cluster.name} describe isvc -n {service.name}\n"
        f"  {ome} local kubectl --name {cluster.name} get pods,events -n {service.name}\n"
        f"  {ome} local logs operator --name {cluster.name}"
    )


def _farewell(cluster: Cluster, service: Service) -> str:
    ome = command()
    kubectl, where = f"{ome} local kubectl --name {cluster.name}", f"-n {service.name}"
    option = "" if cluster.name == CLUSTER else f" --name {cluster.name}"
    return (
        f"\nThe cluster stays up. To look around:\n"
        f"  {kubectl} get isvc -A\n"
        f"  {kubectl} get pods -A -o wide\n"
        f"  {kubectl} get all {where}\n"
        f"  {kubectl} describe isvc {service.name} {where}\n"
        f"  {ome} local logs operator --name {cluster.name}\n"
        f"  export KUBECONFIG={cluster.kubeconfig}\n"
        f"To remove it all: {ome} demo --down{option}"
    )


def _created(cluster: Cluster) -> str:
    """How many objects of which kind, without what Kubernetes makes by itself."""
    kinds = ("StatefulSet", "Deployment", "Pod", "Service", "PodDisruptionBudget")
    words = [f"{kind.lower()}s.{group}" if group else f"{kind.lower()}s" for kind, group in zip(kinds, _GROUPS, strict=True)]
    names = cluster.kubectl("get", ",".join(words), "-n", KIMI.name, "-o", "name").splitlines()
    found = [name.split("/")[0].split(".")[0] for name in names]
    pairs = [(found.count(kind.lower()), kind) for kind in kinds]
    counts = ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for count, kind in pairs if count)
    return f"  created in namespace {KIMI.name}: {counts}"


_GROUPS = ("apps", "apps", "", "", "policy")


def command() -> str:
    """How this person calls us: `ome` when the shell finds it, else the path below the working directory."""
    own = Path(sys.argv[0])
    if shutil.which("ome") and os.path.realpath(str(shutil.which("ome"))) == os.path.realpath(own):
        return "ome"
    try:
        return str(own.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(own)
