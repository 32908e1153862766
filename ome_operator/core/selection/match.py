"""Whether a runtime serves a model: every rule that it breaks, and its score where it breaks none (docs/choosing.md)."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from ome_operator.api import Runtime, SupportedModelFormat, Version
from ome_operator.core.selection import versions
from ome_operator.core.selection.model_profile import ModelProfile, size


class Broken(NamedTuple):
    """A rule that a candidate breaks."""

    sentence: str
    """What the runtime is for, and what is there instead; the candidate's name stands before it."""
    sure: bool = True
    """False where one side says nothing: enough to leave a candidate out, not to warn somebody who named it."""


class Score(NamedTuple):
    """How well a runtime matches; a smaller one is better."""

    minus_weight: int
    """−(weight of the format + weight of the framework) × priority, of the best format."""
    width: float
    """Of the range of sizes: the narrowest is made for such a model. Infinite without one, or without a size."""


def broken(runtime: Runtime, model: ModelProfile, *, chosen: bool) -> tuple[Broken, ...]:
    """The rules that a runtime breaks with a model: of its formats the one that comes closest speaks.

    `chosen` False for a runtime that was named: then it need not offer itself, and one that names no formats serves all.
    """
    formats = runtime.spec.supported_model_formats or ()
    if not formats and not chosen:
        return _size(runtime, model)
    offered = [one for one in formats if one.auto_select] if chosen else list(formats)
    if not offered:
        said = "none of its supportedModelFormats has autoSelect: true" if formats else "it names no supportedModelFormats"
        return (Broken(said, False), *_closest(formats, model), *_size(runtime, model))
    return (*_closest(offered, model), *_size(runtime, model))


def score(runtime: Runtime, model: ModelProfile) -> Score:
    """The score of a runtime that breaks no rule."""
    formats = [one for one in runtime.spec.supported_model_formats or () if one.auto_select and not _format(one, model)]
    best = max((_weight(one) for one in formats), default=0)
    low, high = _range(runtime)
    bounded = model.parameters is not None and low is not None and high is not None
    return Score(-best, (high or 0) - (low or 0) if bounded else math.inf)


def _weight(one: SupportedModelFormat) -> int:
    parts = (one.model_format, one.model_framework)
    weight = sum(1 if part.weight is None else part.weight for part in parts if part is not None)
    return max(weight, 1) * (1 if one.priority is None else one.priority)


def _closest(formats: Iterable[SupportedModelFormat], model: ModelProfile) -> tuple[Broken, ...]:
    return min((_format(one, model) for one in formats), key=len, default=())


def _format(one: SupportedModelFormat, model: ModelProfile) -> tuple[Broken, ...]:
    """The rules that one supported format breaks."""
    pipeline = (one.diffusion_pipeline.class_name if one.diffusion_pipeline else None) or ""
    format_ = one.model_format or (Version(name=one.name) if one.name else None)
    rules = (
        _equal("diffusion pipeline", pipeline, model.pipeline),
        _equal("architecture", one.model_architecture or "", model.architecture),
        _quantized(one.quantization or "", model),
        _versioned("format", format_, model.format),
        _versioned("framework", one.model_framework, model.framework),
    )
    return tuple(rule for rule in rules if rule is not None)


def _equal(what: str, wanted: str, there: str) -> Broken | None:
    if wanted.lower() == there.lower():
        return None
    if not there:
        return Broken(f"it is for {what} {wanted}, and the model's is not known", False)
    if not wanted:
        return Broken(f"it names no {what}, and the model has {there}", False)
    return Broken(f"it is for {what} {wanted}, and the model has {there}")


def _quantized(wanted: str, model: ModelProfile) -> Broken | None:
    return None if wanted.lower() in model.quantizations else _equal("quantization", wanted, model.quantization)


def _versioned(what: str, wanted: Version | None, there: Version | None) -> Broken | None:
    if wanted is None:
        return None if what == "framework" else Broken(f"its supportedModelFormats name no {what}", False)
    if there is None:
        return Broken(f"it is for {what} {wanted.name}, and the model's is not known", False)
    if wanted.name.lower() != there.name.lower():
        return Broken(f"it is for {what} {wanted.name}, and the model has {there.name}")
    if not wanted.version or not there.version or versions.holds(wanted.operator, wanted.version, there.version):
        return None
    asked = f"{wanted.name} {versions.SAID.get(wanted.operator or '', '')}{wanted.version}"
    if wanted.operator in versions.SAID and not versions.ordered(wanted.version, there.version):
        return Broken(f"it is for {what} {asked}, and the model has {there.version}, which cannot be compared with that")
    return Broken(f"it is for {what} {asked}, and the model has {there.version}")


def _size(runtime: Runtime, model: ModelProfile) -> tuple[Broken, ...]:
    low, high = _range(runtime)
    if model.parameters is None or (low or 0) <= model.parameters <= (math.inf if high is None else high):
        return ()
    said = runtime.spec.model_size_range
    bounds = f"{(said.min if said else None) or '0'} to {(said.max if said else None) or 'any'}"
    return (Broken(f"it is for sizes from {bounds}, and the model has {model.parameters / 1e9:,.1f}B parameters"),)


def _range(runtime: Runtime) -> tuple[float | None, float | None]:
    bounds = runtime.spec.model_size_range
    return (size(bounds.min), size(bounds.max)) if bounds else (None, None)
