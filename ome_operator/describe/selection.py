"""The choice of a runtime in full, for people: every candidate, and every rule that speaks against it."""

from collections.abc import Collection, Iterator

from ome_operator.api import InferenceService, Model
from ome_operator.core.observed.objects import Deps
from ome_operator.core.reasons import Reason
from ome_operator.core.resolve.inputs import model_refs, resolve, runtime_refs
from ome_operator.core.selection.model_profile import ModelProfile, known
from ome_operator.core.selection.runtime import called, select


def explain(service: InferenceService, deps: Deps, *, draft: bool = False) -> Iterator[str]:
    """Lines that say what would be chosen for a service that is new, and why nothing else.

    `draft`: it gets its components from the runtime, so that it lacks them is no problem of it.
    """
    quiet = (Reason.NO_RUNTIME_FITS, Reason.NO_ENGINE) if draft else (Reason.NO_RUNTIME_FITS,)
    found = next((deps.models[ref] for ref in model_refs(service) if ref in deps.models), None)
    if not isinstance(found, Model):
        yield from _problems(service, deps, quiet)
        return
    model = known(found, True, deps.well_known)
    yield f"model {found.kind} {found.name}: {_words(model)}"
    if runtime_refs(service):
        yield "spec.runtime.name names the runtime, so nothing is chosen; without it:"
    selection = select(service, model, deps)
    for number, one in enumerate(selection.fitting):
        assert one.score is not None
        yield f"{'chosen  ' if number == 0 else 'fits    '} {called(one.ref)}: weight × priority {-one.score.minus_weight}"
    for one in selection.excluded:
        yield f"excluded {called(one.ref)}"
        yield from (f"           {rule}" for rule in one.broken)
    if not selection.fitting:
        yield "nothing fits" if selection.excluded else "there is no runtime"
    yield from _problems(service, deps, quiet)


def _problems(service: InferenceService, deps: Deps, quiet: Collection[str]) -> Iterator[str]:
    result = resolve(service, deps)
    for problem in result.problems:
        if problem.reason not in quiet:
            yield f"problem  {problem.reason}: {problem.message}"
    yield from (f"advice   {one}" for one in result.advice)


def _words(model: ModelProfile) -> str:
    said = [
        f"format {model.format.name}{' ' + model.format.version if model.format.version else ''}" if model.format else "",
        f"framework {model.framework.name}" if model.framework else "",
        f"architecture {model.architecture}" if model.architecture else "architecture not known",
        f"quantization {model.quantization or 'none'}",
        f"{model.parameters / 1e9:,.1f}B parameters" if model.parameters else "size not known",
    ]
    source = f" (well known as {model.well_known}; nobody has read its files)" if model.well_known else ""
    return ", ".join(one for one in said if one) + source
