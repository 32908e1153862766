"""Select the runtime of a service that names none, and report why the other candidates are excluded (docs/choosing.md,
"Runtime selection").

A runtime is selected once and stored with the revision (decisions 2): new candidates, new nodes and facts found later do not
change the selection. It is repeated only if the service's own spec changes, or if the selected runtime or the model is
edited so that they no longer match.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ome_operator import keys
from ome_operator.api import Component, InferenceService, Invalid, Runtime
from ome_operator.core.observed.objects import Deps, Ref
from ome_operator.core.podspec.default_router import default_router
from ome_operator.core.selection.capability import AcceleratorNeeds, unmet_requirements
from ome_operator.core.selection.match import Score, Violation, score, violations
from ome_operator.core.selection.model_profile import ModelProfile
from ome_operator.settings.policy import ENABLE_AGENTS

NAMED = 600
"""Maximum number of characters that a condition's message spends on the names and violations of excluded candidates."""


SPLIT = "it separates prefill and decode, but the service has no decoder"
"""Clause for a message about a runtime that has a decoderConfig, and therefore cannot serve a service without a decoder."""


@dataclass(frozen=True)
class Candidate:
    """A runtime that could be selected."""

    ref: Ref
    score: Score | None = None
    """Score of the candidate; None if the candidate is excluded."""
    violations: tuple[str, ...] = ()
    """The rules that exclude the candidate, as clauses for a message; () if it is not excluded."""
    write: tuple[str, ...] = ()
    """The fields of the model's spec, with their values, that the candidate asks for. The candidate is not excluded for
    any other reason."""


@dataclass(frozen=True)
class Selection:
    """The result of a selection: the matching candidates, best first, and the excluded candidates,
    fewest violations first.
    """

    candidates: tuple[Candidate, ...]
    excluded: tuple[Candidate, ...]

    @property
    def selected_runtime(self) -> Ref | None:
        """The selected runtime; None if no candidate matches."""
        return self.candidates[0].ref if self.candidates else None

    def sentence(self, model: str, field: str = "spec.runtime.name") -> str:
        """Return a bounded message about why no runtime matches: the closest candidates with their violations, and the
        number of further candidates.

        `field` is the field path in which the user can name a runtime.
        """
        if not self.excluded:
            return f"no runtime exists that can serve {model}: apply one, or name one in {field}"
        if asking := self._asking:
            wanted = _listed(
                (f"{runtime_title(each.ref)} asks for {' and '.join(each.write)}" for each in asking), len(self.excluded)
            )
            return (
                f"no runtime fits model {model}, because the model does not state what runtimes ask for: {wanted}. Write "
                f"the fields that are true of the model into its spec, or name a runtime in {field}"
            )
        excluded = (f"{runtime_title(each.ref)}: {', '.join(each.violations)}" for each in self.excluded)
        remedy = f"Name one in {field}, or apply one that fits"
        return f"no runtime fits model {model}: {_listed(excluded, len(self.excluded))}. {remedy}"

    @property
    def _asking(self) -> tuple[Candidate, ...]:
        """The candidates that are excluded only because the spec of the model does not state a property. If several
        candidates ask for the same fields, only one of these candidates is returned.
        """
        return tuple({each.write: each for each in reversed(self.excluded) if each.write}.values())[::-1]


def _listed(clauses: Iterable[str], count: int) -> str:
    """Return the first of `clauses`, up to NAMED characters, followed by the number of candidates that they do not name.
    `count` is the number of all candidates.
    """
    named: list[str] = []
    for text in clauses:
        if named and len("; ".join(named)) + len(text) > NAMED:
            break
        named.append(text if len(text) <= NAMED else text[: NAMED - 2] + " …")
    rest = count - len(named)
    return "; ".join(named) + (f"; and {rest} more (ome explain runtime)" if rest else "")


def remedy_for_unknown_model(model: ModelProfile, deps: Deps) -> str:
    """Return a text to append to `Selection.sentence` if the model's architecture is unknown: how an agent makes it known.
    Return "" for other models.
    """
    if model.learned or model.architecture:
        return ""
    if deps.policy.model_agent:
        return (
            ". An agent reads the fields from the model's files: wait until it reports the model, or write the fields "
            "yourself"
        )
    return f". No agent reads the fields from the model's files: {ENABLE_AGENTS}, or write the fields yourself"


def runtime_title(ref: Ref) -> str:
    """Return the kind and the name of a runtime, as messages show them."""
    return f"{ref.kind} {ref.name}"


def select(service: InferenceService, model: ModelProfile, deps: Deps) -> Selection:
    """Return the matching and the excluded candidates among all runtimes that the service may use."""
    candidates = [
        _candidate(ref, candidate, service, model, deps) for ref, candidate in deps.runtimes.items() if _may(ref, service)
    ]
    fitting = sorted((candidate for candidate in candidates if candidate.score is not None), key=_order)
    excluded = sorted(
        (candidate for candidate in candidates if candidate.score is None),
        key=lambda candidate: (len(candidate.violations), candidate.ref),
    )
    return Selection(tuple(fitting), tuple(excluded))


def _order(candidate: Candidate) -> tuple[Any, ...]:
    """Return the sort key of a matching candidate. The order is total, because no two candidates have the same namespace
    and name. With equal weight, a runtime in the service's namespace precedes cluster-wide runtimes.
    """
    assert candidate.score is not None
    return candidate.score.minus_weight, candidate.ref.namespace == "", candidate.score.width, candidate.ref.name


def _may(ref: Ref, service: InferenceService) -> bool:
    named = service.spec.runtime
    return ref.namespace in ("", service.namespace) and (named is None or named.kind in (None, ref.kind))


def _candidate(
    ref: Ref, runtime: Runtime | Invalid, service: InferenceService, model: ModelProfile, deps: Deps
) -> Candidate:
    if isinstance(runtime, Invalid):
        return Candidate(ref, None, (f"it cannot be read: {runtime.why}",))
    rules = [
        *violations(runtime, model, chosen=True),
        *_components(runtime, service),
        *_accelerators(runtime, service, deps),
    ]
    if runtime.spec.disabled:
        rules.insert(0, Violation("it is disabled"))
    if rules:
        write = tuple(rule.write for rule in rules)
        return Candidate(ref, None, tuple(rule.sentence for rule in rules), write if all(write) else ())
    return Candidate(ref, score(runtime, model))


def still_matches(runtime: Runtime, service: InferenceService, model: ModelProfile) -> bool:
    """Return whether a runtime that was selected earlier stays selected. The runtime is replaced only if it violates a rule
    for which the values of both the model and the runtime are known.
    """
    rules = (*violations(runtime, model, chosen=True), *_components(runtime, service))
    return not any(rule.sure for rule in rules)


def _components(runtime: Runtime, service: InferenceService) -> Iterable[Violation]:
    """Yield a violation for each component of the service that the runtime does not configure, and for an unsuitable set
    of components.
    """
    spec = runtime.spec
    brought: Mapping[str, Component | None] = {
        keys.ENGINE: spec.engine_config, keys.DECODER: spec.decoder_config, keys.ROUTER: spec.router_config,
    }  # fmt: skip
    for name, written in service.spec.components.items():
        shared = name != keys.ROUTER and bool(spec.pod.get("containers"))
        default = name == keys.ROUTER and default_router(spec, service.spec) is not None
        if brought[name] is None and not shared and not _own(written) and not default:
            yield Violation(f"it has no {name}Config")
    if spec.decoder_config is not None and service.spec.engine is not None and service.spec.decoder is None:
        yield Violation(SPLIT)
    if (engine := service.annotations.get(keys.ENGINE_NAME)) and not runs_engine(runtime, engine):
        yield Violation(f"its engine is not {engine}")


def _own(written: Component) -> bool:
    parts = (written, written.leader)
    return any(part is not None and (part.runner or part.pod.get("containers")) for part in parts)


def runs_engine(runtime: Runtime, engine: str) -> bool:
    """Return whether the image, command or arguments of a runtime's engine contain the name of this engine (sglang, vllm,
    …).
    """
    config = runtime.spec.engine_config
    boxes = list(runtime.spec.pod.get("containers") or ())
    for part in (config, config.leader if config else None):
        boxes += [part.runner or {}, *(part.pod.get("containers") or ())] if part is not None else []
    words = " ".join(str(container.get(name) or "") for container in boxes for name in ("image", "command", "args"))
    return engine.lower() in words.lower()


def _accelerators(runtime: Runtime, service: InferenceService, deps: Deps) -> Iterable[Violation]:
    """Yield violations if the runtime cannot use any accelerator class that the service allows."""
    selector = service.spec.accelerator_selector
    required = runtime.spec.accelerator_requirements
    own = [
        component.accelerator_override for component in service.spec.components.values() if component.accelerator_override
    ]
    annotated = {service.annotations.get(keys.ACCELERATOR_CLASS)} - {None, ""}
    written = {selector.accelerator_class for selector in (selector, *own) if selector is not None}
    named = sorted(str(name) for name in (written | annotated) - {None, ""})
    for name in named:
        if required and required.accelerator_classes and name not in required.accelerator_classes:
            yield Violation(
                f"it is for accelerators {', '.join(required.accelerator_classes)}, but the service names {name}"
            )
    if named or required is None or not deps.policy.sees_cluster:
        return
    want = AcceleratorNeeds(selector.constraints if selector else None, required, None)
    if not any(not unmet_requirements(component, want) for component in deps.accelerators.values()):
        listed = ", ".join(required.accelerator_classes or ()) or "with the properties that it requires"
        yield Violation(f"it needs an accelerator {listed}, but no AcceleratorClass fits")
