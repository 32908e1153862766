"""BenchmarkJob: a load test of a service or of any endpoint."""

from typing import Annotated, Literal

from pydantic import Field

from ome_operator.api.base import ATOMIC, Rule, Spec
from ome_operator.api.conditions import Conditions
from ome_operator.api.model import Storage
from ome_operator.api.objects import Object
from ome_operator.api.values import Count, FileUri, Labels, Name, Open


class Endpoint(Spec):
    """A server at a URL that implements a known API."""

    url: Annotated[str, Field(min_length=1, max_length=2048)]
    """Address of the server, with or without /v1."""
    api_format: str
    """openai (chat completions) or sglang (SGLang's native API). oci-cohere and cohere are accepted, and a condition
    reports that they are not supported."""
    model_name: str | None = None
    """Name of the model on the server."""


class ServiceRef(Spec):
    """A reference to an InferenceService."""

    name: Name
    """Name of the InferenceService."""
    namespace: Name
    """Namespace of the InferenceService. It can differ from the namespace of the job only if the service's annotation
    `ome.io/benchmark-namespaces` lists the namespace of the job."""


class Target(Spec):
    """The target of the test: a service or a URL. If both are set, the URL is tested."""

    endpoint: Endpoint | None = None
    inference_service: ServiceRef | None = None

    RULES = (
        Rule(
            "has(self.endpoint) || has(self.inferenceService)",
            "there is no target to test: set endpoint or inferenceService",
            lambda t: t.endpoint is not None or t.inference_service is not None,
        ),
    )


class Dataset(Storage):
    """A file of conversations or questions: on a PersistentVolumeClaim, on a node, in an object store or at a URL."""

    storage_uri: FileUri
    """Source of the file: pvc://claim/file, local:///file, s3://, gs://, az://, oci:// or https://."""


class SecretRef(Spec):
    """A reference to a Secret of the same namespace."""

    name: Name
    """Name of the Secret."""


class ServiceMetadata(Spec):
    """Description of the tested service for the report."""

    engine: str
    """Engine, such as SGLang or vLLM."""
    version: str
    """Version of the engine."""
    gpu_type: str
    """Type of GPU, such as H100."""
    gpu_count: int
    """Number of GPUs of the service."""


class PodOverride(Spec):
    """Changes to the pod that sends the requests."""

    image: str | None = None
    """Container image that contains SGLang's serving benchmark."""
    env: Annotated[list[Open] | None, ATOMIC] = None
    """Additional environment variables."""
    env_from: Annotated[list[Open] | None, ATOMIC] = None
    """Additional environment variables from ConfigMaps and Secrets."""
    resources: Open | None = None
    """Resource requests and limits."""
    node_selector: Labels | None = None
    """Labels that the node must have."""
    affinity: Open | None = None
    """A core/v1 Affinity."""
    tolerations: Annotated[list[Open] | None, ATOMIC] = None
    """Tolerations of the pod."""
    volumes: Annotated[list[Open] | None, ATOMIC] = None
    """Additional volumes."""
    volume_mounts: Annotated[list[Open] | None, ATOMIC] = None
    """Additional volume mounts."""


class BenchmarkSpec(Spec):
    """A load test."""

    endpoint: Target
    task: str
    """Task of the model: text-to-text, image-to-text, text-to-embeddings or image-to-embeddings."""
    traffic_scenarios: list[str] | None = None
    """Sizes of prompts and answers in tokens, such as D(100,100), N(480,240)/(300,150), U(50,200)/(50,200) or
    P(2000,500)/200. `dataset` sends the conversations of the data set, `gsm8k` its questions."""
    num_concurrency: list[int] | None = None
    """Numbers of concurrent requests; each number is a separate run."""
    max_time_per_iteration: Count
    """Maximum duration of a run in minutes."""
    max_requests_per_iteration: Count
    """Maximum number of requests of a run."""
    additional_request_params: Labels | None = None
    """Parameters that are added to every request. A value that is valid JSON is sent as JSON, any other value as a
    string."""
    dataset: Dataset | None = None
    tokenizer: str | None = None
    """Name of the tokenizer on the Hugging Face hub, or its path in the pod. If unset: the model of the service, or
    modelName of the endpoint."""
    output_location: Storage
    """Location of the results: pvc://claim/path, local:///path, s3://, gs://, az:// or oci://."""
    result_folder_name: str | None = None
    """Folder in the output location; the name of the job if unset."""
    hugging_face_secret_reference: SecretRef | None = None
    """Secret whose key `token` holds the Hugging Face token for tokenizers and data sets."""
    ttl_seconds_after_finished: Count | None = None
    """Seconds for which the finished Job and the logs of its pod are kept; one day if unset."""
    service_metadata: ServiceMetadata | None = None
    pod_override: PodOverride | None = None


class BenchmarkResult(Spec):
    """Result of a run: one scenario at one number of concurrent requests. Latencies are medians in milliseconds."""

    scenario: str
    """Traffic scenario of the run."""
    concurrency: int
    """Number of concurrent requests."""
    requests: int
    """Number of requests that were answered."""
    failed: int | None = None
    """Number of requests that failed."""
    unfinished: int | None = None
    """Number of requests that were interrupted or never sent because the time of the run was over."""
    ttft: str | None = None
    """Time to first token in milliseconds."""
    tpot: str | None = None
    """Time per output token after the first, in milliseconds."""
    tokens_per_second: str | None = None
    """Output tokens per second."""
    accuracy: str | None = None
    """Share of the questions that were answered correctly."""


class BenchmarkReport(BenchmarkResult):
    """Summary of all runs. Latencies and throughput are those of the run with the highest throughput."""

    results: Annotated[list[BenchmarkResult] | None, ATOMIC] = None
    """Results of the first runs. The output location holds the results of all runs."""
    output: str | None = None
    """Location of the results."""
    error: str | None = None
    """Error of the first request or run that failed."""


class BenchmarkStatus(Spec):
    """Progress and result of the test."""

    state: Literal["Pending", "Running", "Completed", "Failed"] | None = None
    """State of the test."""
    start_time: str | None = None
    """Start time of the Job."""
    completion_time: str | None = None
    """End time of the Job."""
    last_reconcile_time: str | None = None
    """Not written."""
    failure_message: str | None = None
    """Reason of the failure."""
    details: str | None = None
    """Summary of the result in one sentence."""
    started_generation: int | None = None
    """Generation of the spec that the Job was started with."""
    report: BenchmarkReport | None = None
    conditions: Conditions | None = None
    """The conditions Complete and Advice."""
    observed_generation: int | None = None
    """Generation of the spec that this status describes."""


class BenchmarkJob(Object[BenchmarkSpec]):
    """A parsed BenchmarkJob."""

    KINDS = ("BenchmarkJob",)
    SPEC = BenchmarkSpec
