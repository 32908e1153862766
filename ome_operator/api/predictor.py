"""The older form of a service: one `predictor` that names the model, the runtime and the pods."""

from typing import Any

from ome_operator.api.base import Inline
from ome_operator.api.component import Scaled, WorkerPart


class PredictorModel(Inline):
    """What to serve and with what; the fields that are not named are those of a core/v1 Container."""

    base_model: str | None = None
    runtime: str | None = None
    fine_tuned_weights: list[str] | None = None
    storage_uri: str | None = None
    protocol_version: str | None = None
    runtime_version: str | None = None

    @property
    def container(self) -> dict[str, Any]:
        """The inline container as it was written."""
        return self.pod


class Predictor(Scaled):
    """Engine, model and runtime in one; `migrate` takes them apart."""

    model: PredictorModel | None = None
    worker_spec: WorkerPart | None = None
