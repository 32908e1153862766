"""InferenceService: a model, a runtime and the components that serve the model."""

import re
from typing import Annotated

from ome_operator import keys
from ome_operator.api.accelerator import AcceleratorSelector
from ome_operator.api.base import ATOMIC, Rule, Spec
from ome_operator.api.component import Component
from ome_operator.api.moves import Moves
from ome_operator.api.objects import Object
from ome_operator.api.predictor import Predictor
from ome_operator.api.rollout import Rollout
from ome_operator.api.scaling import KedaConfig, ScalingPolicy
from ome_operator.api.values import Name, Open, full_match

NAME_LENGTH = 50
"""Maximum length of a service's name. The names of its child objects are up to 13 characters longer, and must fit into a
label of 63 characters."""
_NAME = f"^[a-z]([-a-z0-9]{{0,{NAME_LENGTH - 2}}}[a-z0-9])?$"
_PART = f"[a-z][-a-z0-9]{{0,{NAME_LENGTH - 2}}}[a-z0-9]"
EXAMPLE = "kimi-k2"
"""The name that a message proposes if no part of the given name is valid."""


def _pin_requires_auto_sync_off(description: str) -> Rule:
    return Rule(
        "!has(self.revision) || (has(self.autoSync) && !self.autoSync)",
        f"revision pins the {description}, so the {description} must not follow edits: set autoSync to false or remove "
        "revision",
        lambda r: r.revision is None or r.auto_sync is False,
    )


class ModelRef(Spec):
    """The model to serve."""

    name: Name
    """Name of the model."""
    kind: str | None = None
    """ClusterBaseModel or BaseModel. If unset, a BaseModel of the namespace takes precedence over a ClusterBaseModel."""
    api_group: str | None = None
    """API group of the model, ome.io."""
    fine_tuned_weights: Annotated[list[str] | None, ATOMIC] = None
    """Names of FineTunedWeights: LoRA weights in addition to the model, or merged weights in place of the model."""
    overlays: Annotated[list[Open] | None, ATOMIC] = None
    """Has no effect yet."""
    auto_sync: bool | None = None
    """Follow edits of the model; true if unset."""
    revision: Name | None = None
    """Name of a stored revision of the service whose model is used. Requires autoSync: false."""

    RULES = (_pin_requires_auto_sync_off("model"),)


class RuntimeRef(Spec):
    """The runtime that serves the model. If no name is set, the best match is chosen once and kept."""

    name: Name | None = None
    """Name of the runtime."""
    kind: str | None = None
    """ClusterServingRuntime or ServingRuntime."""
    api_group: str | None = None
    """API group of the runtime, ome.io."""
    auto_sync: bool | None = None
    """Follow edits of the runtime; true if unset."""
    revision: Name | None = None
    """Name of a stored revision of the service whose runtime is used. Requires autoSync: false."""

    RULES = (_pin_requires_auto_sync_off("runtime"),)


class ServiceSpec(Spec):
    """A service. Only the components that are set exist. With engine and decoder, prefill and decode are disaggregated."""

    model: ModelRef | None = None
    runtime: RuntimeRef | None = None
    engine: Component | None = None
    """The engine, or prefill if there is a decoder."""
    decoder: Component | None = None
    """The decoder (decode)."""
    router: Component | None = None
    """The router in front of engines and decoders."""
    accelerator_selector: AcceleratorSelector | None = None
    keda_config: KedaConfig | None = None
    rollout: Rollout | None = None
    scaling_policy: ScalingPolicy | None = None
    moves: Moves | None = None
    deployment_mode: str | None = None
    """Has no effect: the components determine which objects are created."""
    traffic: Open | None = None
    """Has no effect yet."""
    placement: Open | None = None
    """Has no effect yet."""
    routing: Open | None = None
    """Has no effect yet."""
    predictor: Predictor | None = None
    """The older form of model, runtime and engine."""

    RULES = (
        Rule(
            "!has(self.decoder) || has(self.engine)",
            "decoder requires an engine for prefill: add engine, or rename decoder to engine",
            lambda s: s.decoder is None or s.engine is not None,
        ),
    )

    @property
    def components(self) -> dict[str, Component]:
        """The components that the service sets, by name, always in the same order."""
        named = {keys.ENGINE: self.engine, keys.DECODER: self.decoder, keys.ROUTER: self.router}
        return {role: component for role, component in named.items() if component is not None}


def propose_name(name: str) -> str:
    """Return the name if it is valid, otherwise a similar valid name.

    The similar name is the first valid part of the name, or `EXAMPLE` if no part is valid. The rule below computes the same
    name in CEL.
    """
    if full_match(_NAME)(name):
        return name
    plain = "".join(letter.lower() if letter.isascii() else letter for letter in name)
    plain = (
        plain.replace(".", "-").replace("_", "-").replace(" ", "-")
    )  # the API server accepts no names with spaces, so CEL does not replace them
    stem = plain if re.match("[a-z]", plain) else f"m-{plain}"
    found = re.search(_PART, f"{stem} {EXAMPLE}")
    assert found is not None  # EXAMPLE always matches
    return found[0]


_PLAIN = "self.metadata.name.lowerAscii().replace('.', '-').replace('_', '-')"
_NAME_WORDS = (
    f"names of services become host names: use at most {NAME_LENGTH} lowercase letters, digits and '-', "
    "beginning with a letter and ending with a letter or digit"
)


class InferenceService(Object[ServiceSpec]):
    """A parsed InferenceService."""

    KINDS = ("InferenceService",)
    SPEC = ServiceSpec
    RULES = (
        Rule(
            f"self.metadata.name.matches('{_NAME}')",
            _NAME_WORDS,
            lambda s: full_match(_NAME)(s.name),
            message_cel=f'"{_NAME_WORDS}; for example " + '
            f"(({_PLAIN}.matches('^[a-z]') ? '' : 'm-') + {_PLAIN} + ' {EXAMPLE}').find('{_PART}')",
            path=".metadata.name",
            compute_message=lambda s: f"{_NAME_WORDS}; for example {propose_name(s.name)}",
            at_creation=True,
        ),
    )
