"""The older form of a service: one `predictor` that names the model, the runtime and the pods."""

from typing import Any

from ome_operator.api.base import Inline
from ome_operator.api.component import Scaled, WorkerPart


class PredictorModel(Inline):
    """What to serve and with what; the fields that are not named are those of a core/v1 Container."""

    base_model: str | None = None
    """Name of the model."""
    runtime: str | None = None
    """Name of the runtime."""
    fine_tuned_weights: list[str] | None = None
    """Names of FineTunedWeights."""
    storage_uri: str | None = None
    """Becomes the variable STORAGE_URI."""
    protocol_version: str | None = None
    """Becomes the variable PROTOCOL_VERSION."""
    runtime_version: str | None = None
    """Has no effect."""

    @property
    def container(self) -> dict[str, Any]:
        """The inline container as it was written."""
        return self.pod


class Predictor(Scaled):
    """Engine, model and runtime together; `migrate` takes them apart."""

    model: PredictorModel | None = None
    worker_spec: WorkerPart | None = None
