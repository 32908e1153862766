"""Explains the choice of a runtime. It lists every candidate, and every rule that excludes a candidate."""

from collections.abc import Collection, Iterator

from ome_operator.api import InferenceService, Model
from ome_operator.core.observed.objects import Deps
from ome_operator.core.reasons import Reason
from ome_operator.core.resolve.inputs import model_refs, resolve, runtime_refs
from ome_operator.core.selection.model_profile import ModelProfile, format_parameters, profile_of
from ome_operator.core.selection.runtime import Candidate, runtime_title, select


def explain(service: InferenceService, deps: Deps, *, draft: bool = False) -> Iterator[str]:
    """Yield lines that state which runtime a new service would get, and why the other runtimes are excluded.

    If `draft` is true, the service gets its components from the runtime, so that their absence is not reported as a problem.
    """
    quiet = (Reason.NO_RUNTIME_FITS, Reason.NO_ENGINE) if draft else (Reason.NO_RUNTIME_FITS,)
    found = next((deps.models[ref] for ref in model_refs(service) if ref in deps.models), None)
    if not isinstance(found, Model):
        yield from _problems(service, deps, quiet)
        return
    model = profile_of(found, True, deps.well_known)
    yield f"model {found.kind} {found.name}: {_words(model)}"
    if runtime_refs(service):
        yield "The runtime is set in spec.runtime.name, so the operator does not select one. Without this field:"
    selection = select(service, model, deps)
    for number, item in enumerate(selection.candidates):
        assert item.score is not None
        label = "chosen  " if number == 0 else "fits    "
        tie = _tie(selection.candidates[0], item) if number else ""
        yield f"{label} {runtime_title(item.ref)}: weight × priority {-item.score.minus_weight}{tie}"
    for item in selection.excluded:
        yield f"excluded {runtime_title(item.ref)}"
        yield from (f"           {rule}" for rule in item.violations)
    if not selection.candidates:
        yield "nothing fits" if selection.excluded else "there is no runtime"
    yield from _problems(service, deps, quiet)


def _tie(best: Candidate, other: Candidate) -> str:
    """Return the end of a message about a runtime with the same weight and priority as the chosen runtime: why the chosen
    runtime is preferred. Return "" if the weights or priorities differ.
    """
    assert best.score is not None and other.score is not None
    if best.score.minus_weight != other.score.minus_weight:
        return ""
    if best.ref.namespace != other.ref.namespace:
        return ", the same score as the chosen runtime, which is preferred because it is in the namespace of the service"
    narrower = best.score.width != other.score.width
    why = "its range of sizes is narrower" if narrower else "its name is first in the alphabet"
    return f", the same score as the chosen runtime, which is preferred because {why}"


def _problems(service: InferenceService, deps: Deps, quiet: Collection[str]) -> Iterator[str]:
    result = resolve(service, deps)
    for problem in result.problems:
        if problem.reason not in quiet:
            yield f"problem  {problem.reason}: {problem.message}"
    yield from (f"advice   {item}" for item in result.advice)


def _words(model: ModelProfile) -> str:
    messages = [
        f"format {model.format.name}{' ' + model.format.version if model.format.version else ''}" if model.format else "",
        f"framework {model.framework.name}" if model.framework else "",
        f"architecture {model.architecture}" if model.architecture else "architecture not known",
        f"quantization {model.quantization or ('none' if model.learned else 'not stated, treated as none')}",
        f"{format_parameters(model.parameters)} parameters" if model.parameters else "size not known",
    ]
    source = f" (known model {model.well_known}; its files have not been read)" if model.well_known else ""
    return ", ".join(item for item in messages if item) + source
