"""Determine the server that a BenchmarkJob measures, and the tokenizer that counts its tokens."""

from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from ome_operator import keys
from ome_operator.api import BenchmarkJob, InferenceService, Invalid, Model
from ome_operator.core.observed.objects import Deps
from ome_operator.core.problem import ProblemError
from ome_operator.core.reasons import COMPLETE, READY, SCALED, Reason
from ome_operator.core.resolve.inputs import object_refs
from ome_operator.core.weights.mount import Mount, directory, mount, weights
from ome_operator.util.similar import suggestion

NATIVE, CHAT = "sglang", "vllm-chat"
"""Backends of SGLang's benchmark: the first backend sends requests to `/generate` of SGLang, and the second backend to
`/v1/chat/completions` of any server."""
_FORMATS = {"sglang": NATIVE, "openai": CHAT}
_CHATS = ("vllm", "tgi")


class ServerUnderTest(NamedTuple):
    """The server that receives the requests."""

    url: str
    backend: str
    model: str
    """Name of the model for the server; "" if the benchmark has to ask the server for the name."""
    tokenizer: str
    """Name of a tokenizer on the hub, or a path in the pod."""
    weights: Mount | None = None
    """Mount of the model's files; None unless the tokenizer of the service's model is used."""


def target(
    job: BenchmarkJob, service: InferenceService | Invalid | None, deps: Deps, services: Iterable[str] = ()
) -> ServerUnderTest:
    """Return the server that a job measures. Raises ProblemError if there is no such server (yet). `service` is the
    current state of the service that the job names, and `services` are the names of the services in the job's namespace.
    """
    if job.spec.endpoint.endpoint is not None:
        return _endpoint(job)
    named = job.spec.endpoint.inference_service
    where = f"{named.namespace}/{named.name}" if named else ""
    if named is not None and named.namespace != job.namespace and not _lets_in(service, job.namespace):
        # The message does not depend on whether the service exists, so that it does not reveal objects of other
        # namespaces.
        raise ProblemError(
            COMPLETE,
            Reason.SERVICE_NOT_FOUND,
            f"there is no InferenceService {where} that allows BenchmarkJobs of namespace {job.namespace}: the job waits "
            f"until {where} exists and its annotation {keys.BENCHMARK_NAMESPACES} names {job.namespace}",
        )
    if service is None:
        question = suggestion(named.name, services) if named is not None else ""
        message = f"InferenceService {where} does not exist yet: {question}the job waits for it"
        raise ProblemError(COMPLETE, Reason.SERVICE_NOT_FOUND, message)
    if isinstance(service, Invalid) or (lacks := _lacks(service)):
        sentence = f"InferenceService {where} {'is not Ready' if isinstance(service, Invalid) else lacks}"
        raise ProblemError(COMPLETE, Reason.SERVICE_NOT_READY, f"{sentence}: the job waits for it")
    metadata = job.spec.service_metadata
    backend = CHAT if metadata is not None and metadata.engine.lower() in _CHATS else NATIVE
    url = str(service.status.get("url") or "")
    if job.spec.tokenizer:
        return ServerUnderTest(url, backend, "", job.spec.tokenizer)
    model = next((item for ref in object_refs(service) if isinstance(item := deps.models.get(ref), Model)), None)
    if model is None:
        message = (
            f"the model of InferenceService {where} does not exist, so its tokenizer is unknown: name a tokenizer in "
            "spec.tokenizer"
        )
        raise ProblemError(COMPLETE, Reason.NO_TOKENIZER, message)
    identity = weights(model).identity(deps.policy.model_agent)
    model_mount = mount(
        identity, job.namespace, directory=directory(identity, deps.policy.model_agent, deps.policy.agent_roots)
    )
    return ServerUnderTest(url, backend, "", identity["path"], model_mount)


def _lets_in(service: InferenceService | Invalid | None, namespace: str) -> bool:
    """Return whether a service allows jobs of another namespace to measure it, and to mount its model's files for the
    tokenizer. `namespace` is the namespace of the job.
    """
    if service is None or isinstance(service, Invalid):
        return False
    named = service.annotations.get(keys.BENCHMARK_NAMESPACES, "").split(",")
    return namespace in (name.strip() for name in named)


def _lacks(service: InferenceService) -> str:
    """Return why a service cannot be measured yet; "" if it can be measured. A service with fewer groups than desired
    cannot be measured, because its results would differ.
    """
    conditions = {condition.get("type"): condition.get("status") for condition in service.status.get("conditions") or ()}
    if conditions.get(READY) != "True" or not service.status.get("url"):
        return "is not Ready"
    return "serves, but not all of its groups are ready yet" if conditions.get(SCALED) == "False" else ""


def _endpoint(job: BenchmarkJob) -> ServerUnderTest:
    """Return the server at the URL that a job names. A `/v1` at the end of the URL is removed, because the benchmark appends
    it.
    """
    given = job.spec.endpoint.endpoint
    assert given is not None
    if given.api_format not in _FORMATS:
        words = " or ".join(sorted(_FORMATS))
        sentence = f"spec.endpoint.endpoint.apiFormat {given.api_format} is not supported: write {words}"
        raise ProblemError(COMPLETE, Reason.FORMAT_NOT_SERVED, sentence)
    tokenizer = job.spec.tokenizer or given.model_name
    if not tokenizer:
        raise ProblemError(
            COMPLETE, Reason.NO_TOKENIZER, "spec.tokenizer is missing: name a tokenizer of the hub, or a path in the pod"
        )
    url = given.url.rstrip("/").removesuffix("/v1")
    if not _reachable(url):
        sentence = f"spec.endpoint.endpoint.url {given.url} is not the URL of a server: write one such as http://host:8000"
        raise ProblemError(COMPLETE, Reason.FORMAT_NOT_SERVED, sentence)
    return ServerUnderTest(url, _FORMATS[given.api_format], given.model_name or "", tokenizer)


def _reachable(url: str) -> bool:
    """Return whether a URL has the scheme http or https, a host, and a valid port."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is not a number or is too high, or a bracket is not closed
        return False
