"""InferenceService: a model, a runtime and the components that serve it."""

import re
from typing import Annotated

from ome_operator import keys
from ome_operator.api.accelerator import AcceleratorSelector
from ome_operator.api.base import ATOMIC, Rule, Spec
from ome_operator.api.component import Component
from ome_operator.api.objects import Object
from ome_operator.api.predictor import Predictor
from ome_operator.api.rollout import Rollout
from ome_operator.api.scaling import KedaConfig, ScalingPolicy
from ome_operator.api.values import Name, Open, matches

NAME_LENGTH = 50
"""Longest name of a service: names of its children add up to 13 characters and end below a label's 63."""
_NAME = f"^[a-z]([-a-z0-9]{{0,{NAME_LENGTH - 2}}}[a-z0-9])?$"
_PART = f"[a-z][-a-z0-9]{{0,{NAME_LENGTH - 2}}}[a-z0-9]"
EXAMPLE = "kimi-k2"
"""A name that is proposed for names of which nothing can be kept."""


def _pins_only_what_it_does_not_follow(what: str) -> Rule:
    return Rule(
        "!has(self.revision) || (has(self.autoSync) && !self.autoSync)",
        f"revision pins the {what}, so it must not follow edits: set autoSync to false or remove revision",
        lambda r: r.revision is None or r.auto_sync is False,
    )


class ModelRef(Spec):
    """The model to serve."""

    name: Name
    """Name of the model."""
    kind: str | None = None
    """ClusterBaseModel or BaseModel; when unset, a BaseModel of the namespace comes before a ClusterBaseModel."""
    api_group: str | None = None
    """ome.io."""
    fine_tuned_weights: Annotated[list[str] | None, ATOMIC] = None
    """Names of FineTunedWeights: LoRA weights beside the model, or merged weights in its place."""
    overlays: Annotated[list[Open] | None, ATOMIC] = None
    """Has no effect yet."""
    auto_sync: bool | None = None
    """Follow edits of the model; true when unset."""
    revision: Name | None = None
    """The model as a kept revision of the service has it, with autoSync false."""

    RULES = (_pins_only_what_it_does_not_follow("model"),)


class RuntimeRef(Spec):
    """The runtime to serve it with. Without a name the best match is chosen once and kept."""

    name: Name | None = None
    """Name of the runtime."""
    kind: str | None = None
    """ClusterServingRuntime or ServingRuntime."""
    api_group: str | None = None
    """ome.io."""
    auto_sync: bool | None = None
    """Follow edits of the runtime; true when unset."""
    revision: Name | None = None
    """The runtime as a kept revision of the service has it, with autoSync false."""

    RULES = (_pins_only_what_it_does_not_follow("runtime"),)


class ServiceSpec(Spec):
    """A component exists only if it is named. engine + decoder means prefill and decode apart."""

    model: ModelRef | None = None
    runtime: RuntimeRef | None = None
    engine: Component | None = None
    """The engine, or prefill when there is a decoder."""
    decoder: Component | None = None
    """Decode."""
    router: Component | None = None
    """The router before engines and decoders."""
    accelerator_selector: AcceleratorSelector | None = None
    keda_config: KedaConfig | None = None
    rollout: Rollout | None = None
    scaling_policy: ScalingPolicy | None = None
    deployment_mode: str | None = None
    """Has no effect: what is made follows from the components."""
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
            "decoder needs an engine that does the prefill: add engine, or rename decoder to engine",
            lambda s: s.decoder is None or s.engine is not None,
        ),
    )

    @property
    def components(self) -> dict[str, Component]:
        """The components that the service names, always in the same order."""
        named = {keys.ENGINE: self.engine, keys.DECODER: self.decoder, keys.ROUTER: self.router}
        return {role: component for role, component in named.items() if component is not None}


def propose_name(name: str) -> str:
    """A valid name of a service that resembles this name, or is the name where that is valid.

    It is the first part of the name that is valid, and `EXAMPLE` where no part is. The rule below says the same in CEL.
    """
    if matches(_NAME)(name):
        return name
    plain = "".join(letter.lower() if letter.isascii() else letter for letter in name)
    plain = plain.replace(".", "-").replace("_", "-").replace(" ", "-")  # no API server sees names with blanks
    stem = plain if re.match("[a-z]", plain) else f"m-{plain}"
    found = re.search(_PART, f"{stem} {EXAMPLE}")
    assert found is not None  # EXAMPLE is
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
            lambda s: matches(_NAME)(s.name),
            message_cel=f'"{_NAME_WORDS}; for example " + '
            f"(({_PLAIN}.matches('^[a-z]') ? '' : 'm-') + {_PLAIN} + ' {EXAMPLE}').find('{_PART}')",
            path=".metadata.name",
            say=lambda s: f"{_NAME_WORDS}; for example {propose_name(s.name)}",
            at_creation=True,
        ),
    )
