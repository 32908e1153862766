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
    """Its name."""
    namespace: str | None = None
    """Its namespace; none for kinds of the whole cluster."""


class FineTunedWeightSpec(Spec):
    """Weights and the model that they were trained on."""

    base_model_ref: ObjectRef
    model_type: str
    """LoRA, merged, and so on."""
    storage: Storage
    hyper_parameters: Open | None = None
    """It describes only."""
    configuration: Open | None = None
    """`merged_weights: true` says that the weights hold the whole model."""
    training_job_ref: ObjectRef | None = None
    vendor: str | None = None
    """It describes only."""
    version: str | None = None
    """It describes only."""
    display_name: str | None = None
    """It describes only."""
    disabled: bool | None = None
    """No new service may use it."""
    compartment_id: Annotated[str | None, Field(alias="compartmentID")] = None
    """It describes only."""


class FineTunedWeightStatus(ModelStatus):
    """The same as a model's."""


class FineTunedWeight(Object[FineTunedWeightSpec]):
    """A parsed FineTunedWeight."""

    KINDS = ("FineTunedWeight",)
    SPEC = FineTunedWeightSpec
