"""BenchmarkJob: a load test of a service or of any endpoint."""

from typing import Annotated, Literal

from pydantic import Field

from ome_operator.api.base import ATOMIC, Rule, Spec
from ome_operator.api.conditions import Conditions
from ome_operator.api.model import Storage
from ome_operator.api.objects import Object
from ome_operator.api.values import Count, FileUri, Labels, Name, Open


class Endpoint(Spec):
    """Any URL that speaks a known format."""

    url: Annotated[str, Field(min_length=1, max_length=2048)]
    """Address of the server, with or without /v1."""
    api_format: str
    """openai (chat completions) or sglang (SGLang's own); oci-cohere and cohere are accepted and refused in a condition."""
    model_name: str | None = None
    """What the server calls its model."""


class ServiceRef(Spec):
    """An InferenceService."""

    name: Name
    """Its name."""
    namespace: Name
    """Its namespace: another than the job's only where the service's annotation `ome.io/benchmark-namespaces` names the
    job's."""


class Target(Spec):
    """What is tested: a service or a URL; the URL when both are there."""

    endpoint: Endpoint | None = None
    inference_service: ServiceRef | None = None

    RULES = (
        Rule(
            "has(self.endpoint) || has(self.inferenceService)",
            "name what to test: set endpoint or inferenceService",
            lambda t: t.endpoint is not None or t.inference_service is not None,
        ),
    )


class Dataset(Storage):
    """A file of conversations or questions: on a claim, on a node, in an object store, or behind a URL."""

    storage_uri: FileUri
    """pvc://claim/file, local:///file, s3://, gs://, az://, oci://, https://."""


class SecretRef(Spec):
    """A Secret of the namespace."""

    name: Name
    """Its name."""


class ServiceMetadata(Spec):
    """What is tested, as it shall stand in the report."""

    engine: str
    """Engine, such as SGLang or vLLM."""
    version: str
    """Version of the engine."""
    gpu_type: str
    """Such as H100."""
    gpu_count: int
    """GPUs of the service."""


class PodOverride(Spec):
    """What is different about the pod that sends the requests."""

    image: str | None = None
    """Image with SGLang's serving benchmark."""
    env: Annotated[list[Open] | None, ATOMIC] = None
    """More variables."""
    env_from: Annotated[list[Open] | None, ATOMIC] = None
    """More variables, from ConfigMaps and Secrets."""
    resources: Open | None = None
    """Requests and limits."""
    node_selector: Labels | None = None
    """Labels that the node must have."""
    affinity: Open | None = None
    """A core/v1 Affinity."""
    tolerations: Annotated[list[Open] | None, ATOMIC] = None
    """Taints of nodes that do not matter."""
    volumes: Annotated[list[Open] | None, ATOMIC] = None
    """More volumes."""
    volume_mounts: Annotated[list[Open] | None, ATOMIC] = None
    """More mounts."""


class BenchmarkSpec(Spec):
    """A load test."""

    endpoint: Target
    task: str
    """text-to-text, image-to-text, text-to-embeddings or image-to-embeddings."""
    traffic_scenarios: list[str] | None = None
    """Sizes in tokens, such as D(100,100), N(480,240)/(300,150), U(50,200)/(50,200) or P(2000,500)/200; `dataset` for its
    conversations, `gsm8k` for its questions."""
    num_concurrency: list[int] | None = None
    """Numbers of requests in flight, a run for each."""
    max_time_per_iteration: Count
    """Minutes."""
    max_requests_per_iteration: Count
    """Requests of a run at most."""
    additional_request_params: Labels | None = None
    """Parameters of every request: JSON where a value is JSON, else text."""
    dataset: Dataset | None = None
    tokenizer: str | None = None
    """Name on the hub, or a path in the pod; the service's model, or modelName of the endpoint, when unset."""
    output_location: Storage
    """Where the results go: pvc://claim/path, local:///path, s3://, gs://, az:// or oci://."""
    result_folder_name: str | None = None
    """Folder in the output location; the job's own name when unset."""
    hugging_face_secret_reference: SecretRef | None = None
    """Its `token` opens the hub for tokenizers and data sets."""
    ttl_seconds_after_finished: Count | None = None
    """Seconds that the Job and the logs of its pod stay; a day when unset."""
    service_metadata: ServiceMetadata | None = None
    pod_override: PodOverride | None = None


class BenchmarkResult(Spec):
    """A scenario at a number of requests in flight. Latencies are medians in milliseconds."""

    scenario: str
    """The traffic."""
    concurrency: int
    """Requests in flight."""
    requests: int
    """That were answered."""
    failed: int | None = None
    """Requests that failed."""
    unfinished: int | None = None
    """Cut off or never sent, for the time was up."""
    ttft: str | None = None
    """Time to first token."""
    tpot: str | None = None
    """Time per output token after the first."""
    tokens_per_second: str | None = None
    """Output tokens."""
    accuracy: str | None = None
    """Share of the questions that were answered right."""


class BenchmarkReport(BenchmarkResult):
    """All runs together; latencies and throughput of the run with the highest throughput."""

    results: Annotated[list[BenchmarkResult] | None, ATOMIC] = None
    """The first of the runs; all of them are in the output location."""
    output: str | None = None
    """Where the results are."""
    error: str | None = None
    """What the first failed request, or run, said."""


class BenchmarkStatus(Spec):
    """How the test went."""

    state: Literal["Pending", "Running", "Completed", "Failed"] | None = None
    """How far it is."""
    start_time: str | None = None
    """When its Job began."""
    completion_time: str | None = None
    """When its Job ended."""
    last_reconcile_time: str | None = None
    """Not written."""
    failure_message: str | None = None
    """Why it failed."""
    details: str | None = None
    """What came out, in a sentence."""
    started_generation: int | None = None
    """The spec that runs or ran."""
    report: BenchmarkReport | None = None
    conditions: Conditions | None = None
    """Complete, and Advice."""
    observed_generation: int | None = None
    """Generation of the spec that this is about."""


class BenchmarkJob(Object[BenchmarkSpec]):
    """A parsed BenchmarkJob."""

    KINDS = ("BenchmarkJob",)
    SPEC = BenchmarkSpec
