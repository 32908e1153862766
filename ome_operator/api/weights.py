"""FineTunedWeight: weights that were trained from a base model."""

from typing import Annotated

from pydantic import Field

from ome_operator.api.base import Spec
from ome_operator.api.model import ModelStatus, Storage
from ome_operator.api.objects import Object
from ome_operator.api.values import Name, Open


class ObjectRef(Spec):
    """A reference to another object."""

    name: Name
    """Name of the object."""
    namespace: str | None = None
    """Namespace of the object; unset for cluster-scoped kinds."""


class FineTunedWeightSpec(Spec):
    """Fine-tuned weights and their base model."""

    base_model_ref: ObjectRef
    model_type: str
    """Type of the weights, such as LoRA or merged."""
    storage: Storage
    hyper_parameters: Open | None = None
    """Informational only."""
    configuration: Open | None = None
    """`merged_weights: true` states that the files hold the whole model."""
    training_job_ref: ObjectRef | None = None
    vendor: str | None = None
    """Informational only."""
    version: str | None = None
    """Informational only."""
    display_name: str | None = None
    """Informational only."""
    disabled: bool | None = None
    """If true, no new service can use the weights."""
    compartment_id: Annotated[str | None, Field(alias="compartmentID")] = None
    """Informational only."""


class FineTunedWeightStatus(ModelStatus):
    """Status of the weights. It has the same fields as the status of a model."""


class FineTunedWeight(Object[FineTunedWeightSpec]):
    """A parsed FineTunedWeight."""

    KINDS = ("FineTunedWeight",)
    SPEC = FineTunedWeightSpec
