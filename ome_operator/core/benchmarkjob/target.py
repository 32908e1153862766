"""What a BenchmarkJob is sent to, and the tokenizer that counts its tokens."""

from typing import NamedTuple
from urllib.parse import urlsplit

from ome_operator import keys
from ome_operator.api import BenchmarkJob, InferenceService, Invalid, Model
from ome_operator.core.observed.objects import Deps
from ome_operator.core.problem import ProblemError
from ome_operator.core.reasons import COMPLETE, Reason
from ome_operator.core.resolve.inputs import object_refs
from ome_operator.core.weights.mount import Mount, directory, mount, weights

NATIVE, CHAT = "sglang", "vllm-chat"
"""Backends of SGLang's benchmark: `/generate`, and `/v1/chat/completions` of any server."""
_FORMATS = {"sglang": NATIVE, "openai": CHAT}
_CHATS = ("vllm", "tgi")


class ServerUnderTest(NamedTuple):
    """Where the requests go."""

    url: str
    backend: str
    model: str
    """What the server calls its model; "" asks it."""
    tokenizer: str
    """Name on the hub, or a path in the pod."""
    weights: Mount | None = None
    """Where the tokenizer is that of the service's model."""


def target(job: BenchmarkJob, service: InferenceService | Invalid | None, deps: Deps) -> ServerUnderTest:
    """The target of a job; `service` is the one that it names, as it is now. Raises ProblemError while there is none."""
    if job.spec.endpoint.endpoint is not None:
        return _endpoint(job)
    named = job.spec.endpoint.inference_service
    where = f"{named.namespace}/{named.name}" if named else ""
    if named is not None and named.namespace != job.namespace and not _lets_in(service, job.namespace):
        # The same words whether it exists or not: what another namespace has is not for everybody to know.
        raise ProblemError(
            COMPLETE,
            Reason.SERVICE_NOT_FOUND,
            f"there is no InferenceService {where} that lets BenchmarkJobs of namespace {job.namespace} in: the job waits "
            f"until its annotation {keys.BENCHMARK_NAMESPACES} names {job.namespace}",
        )
    if service is None:
        raise ProblemError(
            COMPLETE, Reason.SERVICE_NOT_FOUND, f"InferenceService {where} does not exist yet: the job waits for it"
        )
    if isinstance(service, Invalid) or not _ready(service):
        raise ProblemError(
            COMPLETE, Reason.SERVICE_NOT_READY, f"InferenceService {where} is not Ready: the job waits for it"
        )
    said = job.spec.service_metadata
    backend = CHAT if said is not None and said.engine.lower() in _CHATS else NATIVE
    url = str(service.status.get("url") or "")
    if job.spec.tokenizer:
        return ServerUnderTest(url, backend, "", job.spec.tokenizer)
    model = next((found for ref in object_refs(service) if isinstance(found := deps.models.get(ref), Model)), None)
    if model is None:
        said_so = f"the model of InferenceService {where} does not exist: name a tokenizer in spec.tokenizer"
        raise ProblemError(COMPLETE, Reason.NO_TOKENIZER, said_so)
    identity = weights(model).identity(deps.policy.model_agent)
    held = mount(identity, job.namespace, directory=directory(identity, deps.policy.model_agent, deps.policy.agent_roots))
    return ServerUnderTest(url, backend, "", identity["path"], held)


def _lets_in(service: InferenceService | Invalid | None, namespace: str) -> bool:
    """Whether a service lets jobs of another namespace measure it, and mount its model's files for their tokenizer."""
    if service is None or isinstance(service, Invalid):
        return False
    named = service.annotations.get(keys.BENCHMARK_NAMESPACES, "").split(",")
    return namespace in (one.strip() for one in named)


def _ready(service: InferenceService) -> bool:
    conditions = {one.get("type"): one.get("status") for one in service.status.get("conditions") or ()}
    return conditions.get("Ready") == "True" and bool(service.status.get("url"))


def _endpoint(job: BenchmarkJob) -> ServerUnderTest:
    """A URL. People write it with or without `/v1`, which the benchmark adds itself."""
    given = job.spec.endpoint.endpoint
    assert given is not None
    if given.api_format not in _FORMATS:
        words = " or ".join(sorted(_FORMATS))
        sentence = f"spec.endpoint.endpoint.apiFormat {given.api_format} is not served: write {words}"
        raise ProblemError(COMPLETE, Reason.FORMAT_NOT_SERVED, sentence)
    tokenizer = job.spec.tokenizer or given.model_name
    if not tokenizer:
        raise ProblemError(
            COMPLETE, Reason.NO_TOKENIZER, "spec.tokenizer is missing: name one on the hub, or a path in the pod"
        )
    url = given.url.rstrip("/").removesuffix("/v1")
    if not _reachable(url):
        sentence = f"spec.endpoint.endpoint.url {given.url} is no URL of a server: write one such as http://host:8000"
        raise ProblemError(COMPLETE, Reason.FORMAT_NOT_SERVED, sentence)
    return ServerUnderTest(url, _FORMATS[given.api_format], given.model_name or "", tokenizer)


def _reachable(url: str) -> bool:
    """Whether a URL names a host, and a port that there can be, for http."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number or too high, a bracket that stays open
        return False
