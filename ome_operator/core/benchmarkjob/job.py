"""The Job of a BenchmarkJob: one pod whose containers run one after the other.

`prepare` (ours) fetches the data set and puts the file beside it that `run` needs; `run` is the published SGLang, with its
own serving benchmark; `report` (ours) makes the results, the page, and the summary that stands in the pod's status.
"""

import json
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
from ome_operator.core.reasons import COMPLETE, NOTHING, Reason, Why
from ome_operator.core.render.pod_template import require

PREPARE, RUN, REPORT = "prepare", "run", "report"
PLAN = "OME_BENCHMARK"
"""Variable that tells the containers what to do, as JSON."""
DAY_S = 86_400
BESIDE_S = 3600
"""Seconds beyond the runs that pulling an image, fetching a data set and importing SGLang may take."""
EACH_S = 120
"""Seconds beyond its time that a run may take to prepare its prompts and count its tokens."""
SECRETS = "/ome/secrets"
_NO_TOOLS = (
    "the operator was started without --tools-image, the image that fetches data sets and makes reports: build "
    "images/agent, push it, and start the operator with --tools-image=REGISTRY/ome-agent:TAG (its chart does so by itself)"
)
_USER = 65532
_OF_QUESTIONS = ("num_shots", "max_new_tokens", "temperature")
"""Of `additionalRequestParams`, what gsm8k understands."""


class Images(NamedTuple):
    """What the containers run."""

    sglang: str
    """Any image that has SGLang's serving benchmark."""
    tools: str
    """Ours, with clients of object stores (images/agent); "" where the operator was told none."""
    pull_secrets: tuple[str, ...] = ()
    """Names of Secrets of the job's namespace with which they are pulled."""


def wanted(
    images: Images, one: BenchmarkJob, service: InferenceService | Invalid | None, deps: Deps
) -> tuple[Manifest | None, Why]:
    """The Job, or why there is none yet; `service` is the one that is to be measured, as it is now."""
    try:
        return job(one, target(one, service, deps), images), NOTHING
    except ProblemError as error:
        return None, Why(error.problem.reason, error.problem.message)


def job(one: BenchmarkJob, to: ServerUnderTest, images: Images) -> Manifest:
    """The Job. Raises ProblemError for what cannot be served."""
    spec = one.spec
    _check_shapes(one)
    data = dataset(spec.dataset, one.namespace)
    made = runs(spec, data.path if data else "")
    out = output(spec.output_location, spec.result_folder_name or one.name, one.namespace)
    if not images.tools:
        raise ProblemError(COMPLETE, Reason.NO_TOOLS_IMAGE, _NO_TOOLS)
    owner = {
        "apiVersion": keys.API_VERSION, "kind": one.kind, "name": one.name, "uid": one.uid,
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    label = {keys.BENCHMARK: names.fit(one.name, names.LABEL)}
    metadata = {
        "name": names.benchmark(one.name),
        "namespace": one.namespace,
        "labels": {keys.MANAGED_BY: keys.MANAGER, **label},
        "annotations": {keys.GENERATION: str(one.generation)},
        "ownerReferences": [owner],
    }
    seconds = spec.max_time_per_iteration * 60
    limits = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": len(made) * (seconds + EACH_S) + BESIDE_S,
        "ttlSecondsAfterFinished": DAY_S if spec.ttl_seconds_after_finished is None else spec.ttl_seconds_after_finished,
    }
    plan = _plan(one, to, made, data, out)
    template = {"metadata": {"labels": label}, "spec": _pod(one, to, images, plan, data, out)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {**limits, "template": template}}


def _check_shapes(one: BenchmarkJob) -> None:
    """Refuse open fields that hold something else than a pod has there. Raises ProblemError."""
    parts: list[tuple[Any, str, str]] = []
    if one.spec.pod_override is not None:
        parts.append((one.spec.pod_override.dump(), "spec.podOverride", ""))
    for name, place in (("dataset", one.spec.dataset), ("outputLocation", one.spec.output_location)):
        if place is not None:
            parts.append((place.node_affinity, f"spec.{name}.nodeAffinity", "nodeAffinity"))
    for value, where, field in parts:
        if said := first_mistake(value, where, field):
            raise ProblemError(COMPLETE, Reason.INVALID_POD, said)


def _plan(one: BenchmarkJob, to: ServerUnderTest, made: tuple[Run, ...], data: PodPath | None, out: PodPath) -> Manifest:
    """What the containers are told."""
    said = one.spec.service_metadata
    return {
        "name": f"{one.namespace}/{one.name}",
        "target": to.url,
        "service": said.dump() if said else {},
        "seconds": one.spec.max_time_per_iteration * 60,
        "serving": _serving(one, to),
        "gsm8k": _gsm8k(one, to) if any(run.scenario == GSM8K for run in made) else {},
        "runs": [_run_manifest(run, to) for run in made],
        "dataset": _remote(data, one.spec.dataset),
        "output": {"path": out.path, **_remote(out, one.spec.output_location)},
    }


def _remote(place: PodPath | None, storage: Storage | None) -> Manifest:
    """What has to be fetched, or sent."""
    if place is None or storage is None or not place.remote:
        return {}
    return {"uri": place.remote, "path": place.path, "parameters": dict(storage.parameters or {})}


def _serving(one: BenchmarkJob, to: ServerUnderTest) -> list[str]:
    """Arguments that all runs of the serving benchmark share."""
    args = ["--backend", to.backend, "--base-url", to.url, "--tokenizer", to.tokenizer, "--disable-tqdm"]
    if to.model or to.backend == NATIVE:
        args += ["--model", to.tokenizer]  # looked for like a tokenizer, so the server's own name of it would be wrong here
    if to.model:
        args += ["--served-model-name", to.model]
    return [*args, *body(one.spec, to.backend == NATIVE)]


def _gsm8k(one: BenchmarkJob, to: ServerUnderTest) -> Manifest:
    """Arguments of the questions, which only SGLang's own format can be asked."""
    url = urlsplit(to.url)
    if to.backend != NATIVE or url.scheme != "http":
        sentence = f"{to.url} cannot be asked gsm8k: that needs SGLang's own format over http"
        raise ProblemError(COMPLETE, Reason.FORMAT_NOT_SERVED, sentence)
    given = {name: value for name, value in params(one.spec).items() if name in _OF_QUESTIONS}
    return {"host": url.hostname, "port": url.port or 80, **given}


def _run_manifest(run: Run, to: ServerUnderTest) -> Manifest:
    exact = ["--tokenize-prompt"] if run.lengths and to.backend == NATIVE else []
    lengths = {"lengths": run.lengths._asdict()} if run.lengths else {}
    told = {"scenario": run.scenario, "concurrency": run.concurrency, "program": run.program}
    return {**told, "args": [*run.args, *exact], **lengths}


def _pod(
    one: BenchmarkJob, to: ServerUnderTest, images: Images, plan: Manifest, data: PodPath | None, out: PodPath
) -> Manifest:
    """Spec of the pod: its steps, what they see, and where it may run."""
    spec = one.spec
    more = spec.pod_override.dump() if spec.pod_override else {}
    env: list[Manifest] = [{"name": PLAN, "value": json.dumps(plan, sort_keys=True)}, {"name": "HOME", "value": "/tmp"}]
    seen = [place.mount for place in (data, to.weights) if place is not None and place.mount is not None]
    written = [out.mount] if out.mount else []
    prepare = _ours(PREPARE, images.tools, env, _secret(spec.dataset, "dataset"))
    run = _sglang(images.sglang, [*env, *_token(one)], seen, more)
    report = _ours(REPORT, images.tools, env, [*written, *_secret(spec.output_location, "output")])
    user = {"runAsNonRoot": True, "runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER}
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {**user, "seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [prepare, run],
        "containers": [report],
        "volumes": [*_volumes(one, to, data, out), *(more.get("volumes") or ())],
        **({"imagePullSecrets": [{"name": name} for name in images.pull_secrets]} if images.pull_secrets else {}),
        **_where(one, to, more),
    }


_SHARED: list[Manifest] = [{"name": "work", "mountPath": WORK}, {"name": "tmp", "mountPath": "/tmp"}]
_RESTRICTED: dict[str, Any] = {
    "terminationMessagePolicy": "FallbackToLogsOnError",
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}


def _sglang(image: str, env: list[Manifest], mounts: list[Manifest], more: Manifest) -> Manifest:
    """The step that sends requests; `more` is spec.podOverride."""
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
    """A step that is a command of this program."""
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


def _token(one: BenchmarkJob) -> list[Manifest]:
    """The hub's token, which nobody but the kubelet reads."""
    secret = one.spec.hugging_face_secret_reference
    if secret is None:
        return []
    return [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": secret.name, "key": "token"}}}]


def _secret(storage: Storage | None, name: str) -> list[Manifest]:
    """Mount of the Secret that opens an object store."""
    if storage is None or not storage.key:
        return []
    return [{"name": f"{name}-secret", "mountPath": f"{SECRETS}/{name}", "readOnly": True}]


def _volumes(one: BenchmarkJob, to: ServerUnderTest, data: PodPath | None, out: PodPath) -> list[Manifest]:
    found: list[Manifest] = [{"name": "work", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]
    found += [place.volume for place in (data, out, to.weights) if place is not None and place.volume is not None]
    for name, storage in (("dataset", one.spec.dataset), ("output", one.spec.output_location)):
        if storage is not None and storage.key:
            found.append({"name": f"{name}-secret", "secret": {"secretName": storage.key, "defaultMode": 0o440}})
    return found


def _where(one: BenchmarkJob, to: ServerUnderTest, more: Manifest) -> Manifest:
    """Where the pod may run: where the model is, where data set and results are, and as podOverride says."""
    places = [place for place in (one.spec.dataset, one.spec.output_location) if place is not None]
    selector: dict[str, str] = {}
    affinity: Manifest = {}
    for place in places:
        selector |= place.node_selector or {}
        if place.node_affinity:
            affinity = {"nodeAffinity": place.node_affinity}
    selector |= more.get("nodeSelector") or {}
    affinity = {**affinity, **(more.get("affinity") or {})}
    if to.weights is not None and to.weights.affinity:
        affinity = require(affinity, to.weights.affinity)
    parts = {"nodeSelector": selector, "affinity": affinity, "tolerations": more.get("tolerations") or []}
    return {name: part for name, part in parts.items() if part}
