"""The older form of a service: a `predictor` that contains the model, the runtime and the pods."""

from typing import Any

from ome_operator.api.base import Inline
from ome_operator.api.component import Scaled, WorkerPart


class PredictorModel(Inline):
    """The model to serve and its runtime. All other fields are those of a core/v1 Container."""

    INLINE = "Container"

    base_model: str | None = None
    """Name of the model."""
    runtime: str | None = None
    """Name of the runtime."""
    fine_tuned_weights: list[str] | None = None
    """Names of FineTunedWeights."""
    storage_uri: str | None = None
    """Value of the environment variable STORAGE_URI."""
    protocol_version: str | None = None
    """Value of the environment variable PROTOCOL_VERSION."""
    runtime_version: str | None = None
    """Has no effect."""

    @property
    def container(self) -> dict[str, Any]:
        """The inline container as the user wrote it."""
        return self.pod


class Predictor(Scaled):
    """The engine, model and runtime in one object. `migrate` converts it to the present form."""

    model: PredictorModel | None = None
    worker_spec: WorkerPart | None = None
