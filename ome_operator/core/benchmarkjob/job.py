"""Render the Job of a BenchmarkJob: one pod whose containers run one after the other.

`prepare` (our image) downloads the data set and writes the script for `run` next to it. `run` is the published SGLang image,
which contains a serving benchmark. `report` (our image) writes the results, the HTML page, and the summary, which becomes
the termination message in the pod's status.
"""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ome_operator import keys, names
from ome_operator.api import BenchmarkJob, InferenceService, Invalid, Storage
from ome_operator.core.benchmarkjob.storage import WORK, PodPath, dataset, output
from ome_operator.core.benchmarkjob.target import NATIVE, ServerUnderTest, target
from ome_operator.core.benchmarkjob.traffic import GSM8K, Run, body, params, runs
from ome_operator.core.observed.objects import Deps, Manifest
from ome_operator.core.podspec.validate import first_mistake
from ome_operator.core.problem import ProblemError
from ome_operator.core.reasons import COMPLETE, NOTHING, Reason, ReasonedMessage
from ome_operator.core.render.pod_template import require

PREPARE, RUN, REPORT = "prepare", "run", "report"
PLAN = "OME_BENCHMARK"
"""Environment variable that contains the work plan of the containers, as JSON."""
DAY_S = 86_400
BESIDE_S = 3600
"""Seconds that a Job may take in addition to its benchmark runs, for pulling images, downloading a data set and importing
SGLang."""
EACH_S = 120
"""Seconds that each run may take in addition to its configured time, for preparing prompts and counting tokens."""
SECRETS = "/ome/secrets"
_NO_TOOLS = (
    "the operator has no image that downloads data sets and writes reports, because it was started without --tools-image: "
    "build images/agent, push it, and start the operator with --tools-image=REGISTRY/ome-agent:TAG, as the chart "
    "does"
)
_USER = 65532
_OF_QUESTIONS = ("num_shots", "max_new_tokens", "temperature")
"""Keys of `additionalRequestParams` that SGLang's benchmark gsm8k supports."""


class Images(NamedTuple):
    """The images of the containers of a benchmark's Job, and the Secrets with which they are pulled."""

    sglang: str
    """The image of the container that runs the benchmark. Any image with SGLang's serving benchmark works."""
    tools: str
    """The image of this project with clients of object stores (images/agent); "" if the operator has no such image."""
    pull_secrets: tuple[str, ...] = ()
    """Names of the image pull Secrets in the job's namespace."""


def desired_job(
    images: Images,
    benchmark: BenchmarkJob,
    service: InferenceService | Invalid | None,
    deps: Deps,
    services: Iterable[str] = (),
) -> tuple[Manifest | None, ReasonedMessage]:
    """Return the Job of a BenchmarkJob, or the reason why the Job cannot be rendered yet. `service` is the current state of
    the service to measure, and `services` are the names of the services in the job's namespace.
    """
    try:
        return job(benchmark, target(benchmark, service, deps, services), images), NOTHING
    except ProblemError as error:
        return None, ReasonedMessage(error.problem.reason, error.problem.message)


def refusal(benchmark: BenchmarkJob) -> str:
    """Return why the operator would refuse the spec of a BenchmarkJob regardless of its service; "" if it would accept the
    spec.
    """
    images = Images("sglang", "tools")
    try:
        server = ServerUnderTest("http://service", NATIVE, "", benchmark.spec.tokenizer or "/model")
        job(benchmark, target(benchmark, None, Deps()) if benchmark.spec.endpoint.endpoint is not None else server, images)
    except ProblemError as error:
        return error.problem.message
    return ""


def job(benchmark: BenchmarkJob, server: ServerUnderTest, images: Images) -> Manifest:
    """Return the Job of a BenchmarkJob that measures `server`. Raises ProblemError for an unsupported spec."""
    spec = benchmark.spec
    _check_shapes(benchmark)
    data = dataset(spec.dataset, benchmark.namespace)
    job_runs = runs(spec, data.path if data else "")
    out = output(spec.output_location, spec.result_folder_name or benchmark.name, benchmark.namespace)
    if not images.tools:
        raise ProblemError(COMPLETE, Reason.NO_TOOLS_IMAGE, _NO_TOOLS)
    owner = {
        "apiVersion": keys.API_VERSION, "kind": benchmark.kind, "name": benchmark.name, "uid": benchmark.uid,
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    label = {keys.BENCHMARK: names.shorten_with_digest(benchmark.name, names.LABEL)}
    metadata = {
        "name": names.benchmark(benchmark.name),
        "namespace": benchmark.namespace,
        "labels": {keys.MANAGED_BY: keys.MANAGER, **label},
        "annotations": {keys.GENERATION: str(benchmark.generation)},
        "ownerReferences": [owner],
    }
    seconds = spec.max_time_per_iteration * 60
    limits = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": len(job_runs) * (seconds + EACH_S) + BESIDE_S,
        "ttlSecondsAfterFinished": DAY_S if spec.ttl_seconds_after_finished is None else spec.ttl_seconds_after_finished,
    }
    plan = _plan(benchmark, server, job_runs, data, out)
    template = {"metadata": {"labels": label}, "spec": _pod(benchmark, server, images, plan, data, out)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {**limits, "template": template}}


def _check_shapes(benchmark: BenchmarkJob) -> None:
    """Raise ProblemError if a field whose structure the CRD leaves open does not have the structure of this part of a
    pod.
    """
    parts: list[tuple[Any, str, str]] = []
    if benchmark.spec.pod_override is not None:
        parts.append((benchmark.spec.pod_override.dump(), "spec.podOverride", ""))
    for name, storage in (("dataset", benchmark.spec.dataset), ("outputLocation", benchmark.spec.output_location)):
        if storage is not None:
            parts.append((storage.node_affinity, f"spec.{name}.nodeAffinity", "nodeAffinity"))
    for value, where, field in parts:
        if message := first_mistake(value, where, field):
            raise ProblemError(COMPLETE, Reason.INVALID_POD, message)


def _plan(
    benchmark: BenchmarkJob, server: ServerUnderTest, job_runs: tuple[Run, ...], data: PodPath | None, out: PodPath
) -> Manifest:
    """Return the work plan, which the containers read from the environment variable `PLAN`. `data` is the location of the
    data set; None if the job has no data set. `out` is the directory of the results.
    """
    metadata = benchmark.spec.service_metadata
    return {
        "name": f"{benchmark.namespace}/{benchmark.name}",
        "target": server.url,
        "service": metadata.dump() if metadata else {},
        "seconds": benchmark.spec.max_time_per_iteration * 60,
        "serving": _serving(benchmark, server),
        "gsm8k": _gsm8k(benchmark, server) if any(run.scenario == GSM8K for run in job_runs) else {},
        "runs": [_run_manifest(run, server) for run in job_runs],
        "dataset": _remote(data, benchmark.spec.dataset),
        "output": {"path": out.path, **_remote(out, benchmark.spec.output_location)},
    }


def _remote(place: PodPath | None, storage: Storage | None) -> Manifest:
    """Return the part of the work plan for downloading from, or uploading to, a remote location: its URI and settings.
    Return {} if the location is mounted in the pod. `place` is the location in the pod, and `storage` the field of the spec
    that names it; None if there is none.
    """
    if place is None or storage is None or not place.remote:
        return {}
    return {"uri": place.remote, "path": place.path, "parameters": dict(storage.parameters or {})}


def _serving(benchmark: BenchmarkJob, server: ServerUnderTest) -> list[str]:
    """Return the arguments that all runs of the serving benchmark have in common."""
    args = ["--backend", server.backend, "--base-url", server.url, "--tokenizer", server.tokenizer, "--disable-tqdm"]
    if server.model or server.backend == NATIVE:
        # The benchmark loads a tokenizer by this name, so it cannot be the name that the server has for its model.
        args += ["--model", server.tokenizer]
    if server.model:
        args += ["--served-model-name", server.model]
    return [*args, *body(benchmark.spec, server.backend == NATIVE)]


def _gsm8k(benchmark: BenchmarkJob, server: ServerUnderTest) -> Manifest:
    """Return the arguments of the benchmark gsm8k. Raises ProblemError if the server does not support SGLang's own format,
    which gsm8k requires.
    """
    url = urlsplit(server.url)
    if server.backend != NATIVE or url.scheme != "http":
        sentence = f"{server.url} does not support gsm8k, which requires SGLang's own format over http"
        raise ProblemError(COMPLETE, Reason.FORMAT_NOT_SERVED, sentence)
    parameters = {name: value for name, value in params(benchmark.spec).items() if name in _OF_QUESTIONS}
    return {"host": url.hostname, "port": url.port or 80, **parameters}


def _run_manifest(run: Run, server: ServerUnderTest) -> Manifest:
    exact = ["--tokenize-prompt"] if run.lengths and server.backend == NATIVE else []
    lengths = {"lengths": run.lengths._asdict()} if run.lengths else {}
    fields = {"scenario": run.scenario, "concurrency": run.concurrency, "program": run.program}
    return {**fields, "args": [*run.args, *exact], **lengths}


def _pod(
    benchmark: BenchmarkJob, server: ServerUnderTest, images: Images, plan: Manifest, data: PodPath | None, out: PodPath
) -> Manifest:
    """Return the spec of the pod: its containers, their volumes, and its node selection. `data` is the location of the data
    set; None if the job has no data set. `out` is the directory of the results.
    """
    spec = benchmark.spec
    more = spec.pod_override.dump() if spec.pod_override else {}
    env: list[Manifest] = [{"name": PLAN, "value": json.dumps(plan, sort_keys=True)}, {"name": "HOME", "value": "/tmp"}]
    read_mounts = [place.mount for place in (data, server.weights) if place is not None and place.mount is not None]
    write_mounts = [out.mount] if out.mount else []
    prepare = _ours(PREPARE, images.tools, env, _secret(spec.dataset, "dataset"))
    run = _sglang(images.sglang, [*env, *_token(benchmark)], read_mounts, more)
    report = _ours(REPORT, images.tools, env, [*write_mounts, *_secret(spec.output_location, "output")])
    user = {"runAsNonRoot": True, "runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER}
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {**user, "seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [prepare, run],
        "containers": [report],
        "volumes": [*_volumes(benchmark, server, data, out), *(more.get("volumes") or ())],
        **({"imagePullSecrets": [{"name": name} for name in images.pull_secrets]} if images.pull_secrets else {}),
        **_where(benchmark, server, more),
    }


_SHARED: list[Manifest] = [{"name": "work", "mountPath": WORK}, {"name": "tmp", "mountPath": "/tmp"}]
_RESTRICTED: dict[str, Any] = {
    "terminationMessagePolicy": "FallbackToLogsOnError",
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}


def _sglang(image: str, env: list[Manifest], mounts: list[Manifest], more: Manifest) -> Manifest:
    """Return the container with SGLang's image, which sends the requests of the benchmark. `more` is the value of
    spec.podOverride.
    """
    return {
        "name": RUN,
        "image": more.get("image") or image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", f"{WORK}/inside.py"],
        "workingDir": WORK,
        "env": [*env, *(more.get("env") or ())],
        **({"envFrom": more["envFrom"]} if more.get("envFrom") else {}),
        "resources": more.get("resources") or {"requests": {"cpu": "500m", "memory": "2Gi"}, "limits": {"memory": "16Gi"}},
        "volumeMounts": [*_SHARED, *mounts, *(more.get("volumeMounts") or ())],
        **_RESTRICTED,
    }


def _ours(step: str, image: str, env: list[Manifest], mounts: list[Manifest]) -> Manifest:
    """Return the container of the step `step` (`prepare` or `report`), which runs `ome benchmark STEP` in our image."""
    return {
        "name": step,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["benchmark", step],
        "env": env,
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "2Gi"}},
        "volumeMounts": [*_SHARED, *mounts],
        **_RESTRICTED,
    }


def _token(benchmark: BenchmarkJob) -> list[Manifest]:
    """Return a list with the variable for the token of the Hugging Face hub; [] if the job has no token. The variable refers
    to a Secret, which only the kubelet reads.
    """
    secret = benchmark.spec.hugging_face_secret_reference
    if secret is None:
        return []
    return [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": secret.name, "key": "token"}}}]


def _secret(storage: Storage | None, name: str) -> list[Manifest]:
    """Return a list with the mount of the Secret that contains the credentials of an object store; [] if there is no such
    Secret. `storage` is the field of the spec that names the Secret; None if the field is not set.
    """
    if storage is None or not storage.key:
        return []
    return [{"name": f"{name}-secret", "mountPath": f"{SECRETS}/{name}", "readOnly": True}]


def _volumes(benchmark: BenchmarkJob, server: ServerUnderTest, data: PodPath | None, out: PodPath) -> list[Manifest]:
    volumes: list[Manifest] = [{"name": "work", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]
    volumes += [place.volume for place in (data, out, server.weights) if place is not None and place.volume is not None]
    for name, storage in (("dataset", benchmark.spec.dataset), ("output", benchmark.spec.output_location)):
        if storage is not None and storage.key:
            volumes.append({"name": f"{name}-secret", "secret": {"secretName": storage.key, "defaultMode": 0o440}})
    return volumes


def _where(benchmark: BenchmarkJob, server: ServerUnderTest, more: Manifest) -> Manifest:
    """Return the node selector, affinity and tolerations of the pod. They select nodes that have the model and the
    locations of the data set and the results. `more` is the value of spec.podOverride, whose labels and affinity take
    precedence.
    """
    places = [place for place in (benchmark.spec.dataset, benchmark.spec.output_location) if place is not None]
    selector: dict[str, str] = {}
    affinity: Manifest = {}
    for place in places:
        selector |= place.node_selector or {}
        if place.node_affinity:
            affinity = {"nodeAffinity": place.node_affinity}
    selector |= more.get("nodeSelector") or {}
    affinity = {**affinity, **(more.get("affinity") or {})}
    if server.weights is not None and server.weights.affinity:
        affinity = require(affinity, server.weights.affinity)
    parts = {"nodeSelector": selector, "affinity": affinity, "tolerations": more.get("tolerations") or []}
    return {name: part for name, part in parts.items() if part}
