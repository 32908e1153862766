"""Decide whether a runtime can serve a model: the rules that it violates, and its score if there are none
(docs/choosing.md).
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from ome_operator.api import Runtime, SupportedModelFormat, Version
from ome_operator.core.selection import versions
from ome_operator.core.selection.model_profile import PLAIN, ModelProfile, format_parameters, parameter_count


class Violation(NamedTuple):
    """A rule that a candidate runtime violates."""

    sentence: str
    """A clause that compares a value of the runtime with a value of the model or service. Messages put the name of the
    runtime in front of the clause."""
    sure: bool = True
    """Whether both the model and the runtime state the value. If the value is unknown on one side, the runtime is not
    selected automatically, but a user who names this runtime is not warned."""
    write: str = ""
    """The field of the model's spec that would satisfy the rule, with its value; "" if the model states another value, or
    the rule is not about the model.
    """


class Score(NamedTuple):
    """The quality of the match between a runtime and a model. Smaller scores are better."""

    minus_weight: int
    """−(weight of the format + weight of the framework) × priority, for the supported format that matches best. It is
    negative because smaller scores are better."""
    width: float
    """Width of the supported range of model sizes: a narrow range is the more specific match. Infinite if the range or
    the model's size is unknown."""


def violations(runtime: Runtime, model: ModelProfile, *, chosen: bool) -> tuple[Violation, ...]:
    """Return the rules that a runtime violates for a model. The supported format with the fewest violations is used.

    `chosen` is False for a runtime that the service names: it then needs no format with autoSelect, and a runtime without
    formats accepts every model.
    """
    formats = runtime.spec.supported_model_formats or ()
    if not formats and not chosen:
        return _size(runtime, model)
    offered = [format_ for format_ in formats if format_.auto_select] if chosen else list(formats)
    if not offered:
        message = (
            "none of its supportedModelFormats has autoSelect: true" if formats else "it names no supportedModelFormats"
        )
        return (Violation(message, False), *_closest(formats, model), *_size(runtime, model))
    return (*_closest(offered, model), *_size(runtime, model))


def score(runtime: Runtime, model: ModelProfile) -> Score:
    """Return the score of a runtime that violates no rule."""
    formats = [
        format_
        for format_ in runtime.spec.supported_model_formats or ()
        if format_.auto_select and not _format(format_, model)
    ]
    best = max((_weight(format_) for format_ in formats), default=0)
    low, high = _range(runtime)
    bounded = model.parameters is not None and low is not None and high is not None
    return Score(-best, (high or 0) - (low or 0) if bounded else math.inf)


def _weight(format_: SupportedModelFormat) -> int:
    parts = (format_.model_format, format_.model_framework)
    weight = sum(1 if part.weight is None else part.weight for part in parts if part is not None)
    return max(weight, 1) * (1 if format_.priority is None else format_.priority)


def _closest(formats: Iterable[SupportedModelFormat], model: ModelProfile) -> tuple[Violation, ...]:
    return min((_format(format_, model) for format_ in formats), key=len, default=())


def _format(supported: SupportedModelFormat, model: ModelProfile) -> tuple[Violation, ...]:
    """Return the rules that a model violates for one supported format of a runtime."""
    pipeline = (supported.diffusion_pipeline.class_name if supported.diffusion_pipeline else None) or ""
    model_format = supported.model_format or (Version(name=supported.name) if supported.name else None)
    architecture = supported.model_architecture or ""
    rules = (
        _equal("diffusion pipeline", pipeline, model.pipeline, f"diffusionPipeline: {{className: {pipeline}}}"),
        _equal("architecture", architecture, model.architecture, f"modelArchitecture: {architecture}"),
        _quantized(supported.quantization or "", model),
        _versioned("format", model_format, model.format),
        _versioned("framework", supported.model_framework, model.framework),
    )
    return tuple(rule for rule in rules if rule is not None)


def _equal(property_: str, wanted: str, actual: str, write: str) -> Violation | None:
    """Return the violation if a value of the model (`actual`) differs from the value that a runtime supports (`wanted`).
    `property_` is the name of the property. `write` is the field of the model's spec with the wanted value. Return None if
    both values are equal.
    """
    if wanted.lower() == actual.lower():
        return None
    if not actual:
        return Violation(f"it is for {property_} {wanted}, but the {property_} of the model is not known", False, write)
    if not wanted:
        return Violation(f"it names no {property_}, but the model has {actual}", False)
    return Violation(f"it is for {property_} {wanted}, but the model has {actual}")


def _quantized(wanted: str, model: ModelProfile) -> Violation | None:
    """Return the violation if the quantization that a runtime supports (`wanted`) is not the quantization of the model. The
    value `none` means the same as no value. Return None if the model has this quantization.
    """
    wanted = "" if wanted.lower() == PLAIN else wanted
    if wanted.lower() in model.quantizations:
        return None
    if wanted and not model.quantization:  # `ome explain runtime` shows this clause
        seen = "has none" if model.learned else "states none and therefore counts as unquantized"
        return Violation(f"it is for quantization {wanted}, but the model {seen}", False, f"quantization: {wanted}")
    return _equal("quantization", wanted, model.quantization, f"quantization: {wanted}")


def _versioned(property_: str, version: Version | None, actual: Version | None) -> Violation | None:
    if version is None:
        return None if property_ == "framework" else Violation(f"its supportedModelFormats name no {property_}", False)
    if actual is None:
        write = f"model{property_.capitalize()}: {{name: {version.name}}}"
        return Violation(
            f"it is for {property_} {version.name}, but the {property_} of the model is not known", False, write
        )
    if version.name.lower() != actual.name.lower():
        return Violation(f"it is for {property_} {version.name}, but the model has {actual.name}")
    if (
        not version.version
        or not actual.version
        or versions.accepts_version(version.operator, version.version, actual.version)
    ):
        return None
    required = f"{version.name} {versions.UNORDERED.get(version.operator or '', '')}{version.version}"
    if version.operator in versions.UNORDERED and not versions.are_comparable(version.version, actual.version):
        return Violation(
            f"it is for {property_} {required}, but the model has {actual.version}, which cannot be compared with this "
            "version"
        )
    return Violation(f"it is for {property_} {required}, but the model has {actual.version}")


def _size(runtime: Runtime, model: ModelProfile) -> tuple[Violation, ...]:
    low, high = _range(runtime)
    if model.parameters is None or (low or 0) <= model.parameters <= (math.inf if high is None else high):
        return ()
    size_range = runtime.spec.model_size_range
    bounds = f"{(size_range.min if size_range else None) or '0'} to {(size_range.max if size_range else None) or 'any'}"
    return (Violation(f"it is for sizes from {bounds}, but the model has {format_parameters(model.parameters)} parameters"),)


def _range(runtime: Runtime) -> tuple[float | None, float | None]:
    bounds = runtime.spec.model_size_range
    return (parameter_count(bounds.min), parameter_count(bounds.max)) if bounds else (None, None)
