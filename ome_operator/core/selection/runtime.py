"""The runtime of a service that names none, and why every other candidate is not it (docs/choosing.md, "Runtime selection").

A choice is made once and stored with the revision (decisions 2): candidates that appear, nodes that come and facts that are
learned later change nothing. It is made again when the service's own spec changes, or when the chosen runtime or the model
is edited so that they do not fit any more.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ome_operator import keys
from ome_operator.api import Component, InferenceService, Invalid, Runtime
from ome_operator.core.observed.objects import Deps, Ref
from ome_operator.core.selection.capability import Want, unfit
from ome_operator.core.selection.match import Broken, Score, broken, score
from ome_operator.core.selection.model_profile import ModelProfile

NAMED = 600
"""Characters of a condition that excluded candidates may fill."""


SPLIT = "it keeps prefill and decode apart, and the service names no decoder"
"""Why a runtime with a decoderConfig does not fit a service of a single engine."""


@dataclass(frozen=True)
class Candidate:
    """A runtime that could be chosen."""

    ref: Ref
    score: Score | None = None
    """None when it is excluded."""
    broken: tuple[str, ...] = ()
    """The rules that exclude it, one sentence each."""


@dataclass(frozen=True)
class Selection:
    """The outcome of a choice: candidates that fit, the best first, and then the others, the fewest reasons first."""

    fitting: tuple[Candidate, ...]
    excluded: tuple[Candidate, ...]

    @property
    def best(self) -> Ref | None:
        """The chosen runtime."""
        return self.fitting[0].ref if self.fitting else None

    def sentence(self, model: str, field: str = "spec.runtime.name") -> str:
        """Why nothing fits, bounded: the closest candidates with their reasons, and how many more there are.

        `field`: where a runtime can be named.
        """
        if not self.excluded:
            return f"no runtime exists that could serve {model}: apply one, or name one in {field}"
        said: list[str] = []
        rest = len(self.excluded)
        for one in self.excluded:
            text = f"{called(one.ref)}: {', '.join(one.broken)}"
            if said and len("; ".join(said)) + len(text) > NAMED:
                break
            said.append(text if len(text) <= NAMED else text[: NAMED - 2] + " …")
            rest -= 1
        more = f"; and {rest} more (ome explain runtime)" if rest else ""
        remedy = f"Name one in {field}, or apply one that fits"
        return f"no runtime fits model {model}: {'; '.join(said)}{more}. {remedy}"


def unread(model: ModelProfile, deps: Deps) -> str:
    """What to do about a model of which not even the architecture is known, behind why nothing fits; "" for any other."""
    if model.learned or model.architecture:
        return ""
    wrote = f"write modelArchitecture and quantization into the spec of model {model.name}"
    if deps.policy.model_agent:
        return f". An agent learns what the model is as soon as a node has its files; or {wrote}"
    return f". Nobody reads the files of the model: install with agent.enabled=true, or {wrote}"


def called(ref: Ref) -> str:
    """A runtime as people call it."""
    return f"{ref.kind} {ref.name}"


def select(service: InferenceService, model: ModelProfile, deps: Deps) -> Selection:
    """Look at every runtime that the service may use."""
    found = [_candidate(ref, one, service, model, deps) for ref, one in deps.runtimes.items() if _may(ref, service)]
    fitting = sorted((one for one in found if one.score is not None), key=_order)
    excluded = sorted((one for one in found if one.score is None), key=lambda one: (len(one.broken), one.ref))
    return Selection(tuple(fitting), tuple(excluded))


def _order(one: Candidate) -> tuple[Any, ...]:
    """Total: no two candidates share namespace and name of one kind. At equal weight a team's own runtime comes first."""
    assert one.score is not None
    return one.score.minus_weight, one.ref.namespace == "", one.score.width, one.ref.name


def _may(ref: Ref, service: InferenceService) -> bool:
    named = service.spec.runtime
    return ref.namespace in ("", service.namespace) and (named is None or named.kind in (None, ref.kind))


def _candidate(
    ref: Ref, runtime: Runtime | Invalid, service: InferenceService, model: ModelProfile, deps: Deps
) -> Candidate:
    if isinstance(runtime, Invalid):
        return Candidate(ref, None, (f"it cannot be read: {runtime.why}",))
    rules = [*broken(runtime, model, chosen=True), *_components(runtime, service), *_accelerators(runtime, service, deps)]
    if runtime.spec.disabled:
        rules.insert(0, Broken("it is disabled"))
    if rules:
        return Candidate(ref, None, tuple(rule.sentence for rule in rules))
    return Candidate(ref, score(runtime, model))


def still(runtime: Runtime, service: InferenceService, model: ModelProfile) -> bool:
    """Whether a runtime that was chosen once may stay: nothing that is known for sure speaks against it."""
    rules = (*broken(runtime, model, chosen=True), *_components(runtime, service))
    return not any(rule.sure for rule in rules)


def _components(runtime: Runtime, service: InferenceService) -> Iterable[Broken]:
    """Whether the runtime brings what the service's components need, and is made for this set of components."""
    spec = runtime.spec
    brought: Mapping[str, Component | None] = {
        keys.ENGINE: spec.engine_config, keys.DECODER: spec.decoder_config, keys.ROUTER: spec.router_config,
    }  # fmt: skip
    for name, written in service.spec.components.items():
        shared = name != keys.ROUTER and bool(spec.pod.get("containers"))
        if brought[name] is None and not shared and not _own(written):
            yield Broken(f"it has no {name}Config")
    if spec.decoder_config is not None and service.spec.engine is not None and service.spec.decoder is None:
        yield Broken(SPLIT)
    if (engine := service.annotations.get(keys.ENGINE_NAME)) and not runs(runtime, engine):
        yield Broken(f"its engine is not {engine}")


def _own(written: Component) -> bool:
    parts = (written, written.leader)
    return any(part is not None and (part.runner or part.pod.get("containers")) for part in parts)


def runs(runtime: Runtime, engine: str) -> bool:
    """Whether the engine of a runtime is the named one (sglang, vllm, …), by its image and command."""
    config = runtime.spec.engine_config
    boxes = list(runtime.spec.pod.get("containers") or ())
    for part in (config, config.leader if config else None):
        boxes += [part.runner or {}, *(part.pod.get("containers") or ())] if part is not None else []
    words = " ".join(str(one.get(name) or "") for one in boxes for name in ("image", "command", "args"))
    return engine.lower() in words.lower()


def _accelerators(runtime: Runtime, service: InferenceService, deps: Deps) -> Iterable[Broken]:
    """Whether a class that the service allows is one that the runtime can use."""
    asked = service.spec.accelerator_selector
    required = runtime.spec.accelerator_requirements
    own = [one.accelerator_override for one in service.spec.components.values() if one.accelerator_override]
    noted = {service.annotations.get(keys.ACCELERATOR_CLASS)} - {None, ""}
    written = {selector.accelerator_class for selector in (asked, *own) if selector is not None}
    named = sorted(str(name) for name in (written | noted) - {None, ""})
    for name in named:
        if required and required.accelerator_classes and name not in required.accelerator_classes:
            yield Broken(f"it is for accelerators {', '.join(required.accelerator_classes)}, and the service names {name}")
    if named or required is None or not deps.policy.sees_cluster:
        return
    want = Want(asked.constraints if asked else None, required, None)
    if not any(not unfit(one, want) for one in deps.accelerators.values()):
        listed = ", ".join(required.accelerator_classes or ()) or "with what it requires"
        yield Broken(f"it needs an accelerator {listed}, and no AcceleratorClass fits")
