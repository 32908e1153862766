"""FineTunedWeight: weights that stand on a base model."""

from typing import Annotated

from pydantic import Field

from ome_operator.api.base import Spec
from ome_operator.api.model import ModelStatus, Storage
from ome_operator.api.objects import Object
from ome_operator.api.values import Name, Open


class ObjectRef(Spec):
    """Another object."""

    name: Name
    namespace: str | None = None


class FineTunedWeightSpec(Spec):
    """Weights and the model that they were trained on."""

    base_model_ref: ObjectRef
    model_type: str
    """LoRA, merged, and so on."""
    storage: Storage
    hyper_parameters: Open | None = None
    configuration: Open | None = None
    training_job_ref: ObjectRef | None = None
    vendor: str | None = None
    version: str | None = None
    display_name: str | None = None
    disabled: bool | None = None
    compartment_id: Annotated[str | None, Field(alias="compartmentID")] = None


class FineTunedWeightStatus(ModelStatus):
    """The same as a model's."""


class FineTunedWeight(Object[FineTunedWeightSpec]):
    """A parsed FineTunedWeight."""

    KINDS = ("FineTunedWeight",)
    SPEC = FineTunedWeightSpec
