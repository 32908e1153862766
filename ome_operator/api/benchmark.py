"""BenchmarkJob: a load test of a service or of any endpoint."""

from typing import Annotated, Literal

from pydantic import Field

from ome_operator.api.base import ATOMIC, Rule, Spec
from ome_operator.api.conditions import Conditions
from ome_operator.api.model import Storage
from ome_operator.api.objects import Object
from ome_operator.api.values import Count, Labels, Name, Open


class Endpoint(Spec):
    """Any URL that speaks one of the formats."""

    url: Annotated[str, Field(min_length=1, max_length=2048)]
    api_format: str
    """openai, oci-cohere or cohere."""
    model_name: str | None = None


class ServiceRef(Spec):
    """An InferenceService."""

    name: Name
    namespace: Name


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


class SecretRef(Spec):
    """A Secret of the namespace."""

    name: Name


class ServiceMetadata(Spec):
    """What is tested, as it shall stand in the report."""

    engine: str
    version: str
    gpu_type: str
    gpu_count: int


class PodOverride(Spec):
    """What is different about the pod that sends the requests."""

    image: str | None = None
    env: Annotated[list[Open] | None, ATOMIC] = None
    env_from: Annotated[list[Open] | None, ATOMIC] = None
    resources: Open | None = None
    node_selector: Labels | None = None
    affinity: Open | None = None
    tolerations: Annotated[list[Open] | None, ATOMIC] = None
    volumes: Annotated[list[Open] | None, ATOMIC] = None
    volume_mounts: Annotated[list[Open] | None, ATOMIC] = None


class BenchmarkSpec(Spec):
    """A load test."""

    endpoint: Target
    task: str
    """text-to-text, image-to-text, text-to-embeddings or image-to-embeddings."""
    traffic_scenarios: list[str] | None = None
    num_concurrency: list[int] | None = None
    """Numbers of requests in flight, one run for each."""
    max_time_per_iteration: Count
    """Minutes."""
    max_requests_per_iteration: Count
    additional_request_params: Labels | None = None
    dataset: Storage | None = None
    output_location: Storage
    """Where the results go."""
    result_folder_name: str | None = None
    hugging_face_secret_reference: SecretRef | None = None
    service_metadata: ServiceMetadata | None = None
    pod_override: PodOverride | None = None


class BenchmarkStatus(Spec):
    """How the test went."""

    state: Literal["Pending", "Running", "Completed", "Failed"] | None = None
    start_time: str | None = None
    completion_time: str | None = None
    last_reconcile_time: str | None = None
    failure_message: str | None = None
    details: str | None = None
    conditions: Conditions | None = None
    observed_generation: int | None = None


class BenchmarkJob(Object[BenchmarkSpec]):
    """A parsed BenchmarkJob."""

    KINDS = ("BenchmarkJob",)
    SPEC = BenchmarkSpec
