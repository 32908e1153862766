"""The fields about rollouts in the status of an InferenceService."""

from typing import Annotated

from pydantic import Field

from ome_operator.api.base import Spec


class RejectedRevision(Spec):
    """A revision whose rollout failed before the revision became ready. Its rollout is repeated only after an edit, or
    with the annotation ome.io/rollout-retry.
    """

    revision: Annotated[str, Field(max_length=253)]
    """Name of the revision."""
    edit: int | None = None
    """Number of the newest revision when this revision was rejected."""
    retry: str | None = None
    """Value of the annotation ome.io/rollout-retry at the time of the rejection."""
    reason: str | None = None
    """The reason as a CamelCase word."""
    message: str | None = None
    """The reason in a sentence."""
    time: str | None = None
    """Time of the rejection."""
    lacks_since: str | None = None
    """Time since which the pods of the revision lacked a claim, a quota or a node that the edit of a shared object does not
    name. Unset if they lacked nothing, or if a container had failed."""


class RolloutProgress(Spec):
    """Progress of the new revision."""

    revision: str | None = None
    """The new revision."""
    ready_pods: int | None = None
    """Highest number of pods that were ready at the same time."""
    since: str | None = None
    """Time since which the number has not increased."""


class ReachedEdit(Spec):
    """An edit of a runtime, a model or an accelerator class that has been rolled out to the service completely."""

    kind: str
    """Kind of the object."""
    namespace: str | None = None
    """Namespace of the object; unset for cluster-scoped kinds."""
    name: str
    """Name of the object."""
    uid: str
    """UID of the object."""
    generation: int
    """Generation of the object that contains the edit."""
    time: str
    """Time at which the rollout of the edit to the service was complete."""


class RolloutHold(Spec):
    """Reason why a rollout does not proceed."""

    gate: str
    """The gate that the rollout waits for."""
    reason: str
    """The reason as a CamelCase word."""
    target: str | None = None
    """The revision that waits."""
    since: str | None = None
    """Time since which the rollout waits."""
