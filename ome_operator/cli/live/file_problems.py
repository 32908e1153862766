"""Rephrases the problems of objects in files. Problems that are consequences of other problems are left out. For a missing
object, the problem states that it may exist on a cluster.
"""

import re
from collections.abc import Collection, Iterable

from ome_operator.cache.resources import RUNTIMES, SERVICE
from ome_operator.core.observed.objects import Ref
from ome_operator.lint.subject import RefusedPart

_ABSENT = re.compile(
    r"(?P<what>.+?) does not exist: (?P<question>did you mean \S+\? Otherwise )?apply it, or (?P<remedy>.+)"
)
"""Message about an object that does not exist, with or without a question about a similar name."""
_WAITS = "a runtime is selected as soon as the model exists"
_NO_ENGINE, _NO_RUNTIME = "spec.engine is missing", "no runtime fits "
_NONE_FITS = (_NO_RUNTIME, "no runtime exists ")


def without_repeats(problems: tuple[str, ...], refused: Collection[RefusedPart], service: str) -> tuple[str, ...]:
    """Return the problems of a service that are no consequences of other problems. Problems are left out if they are caused
    by another problem of the service, or by an object in the files that a cluster would refuse. `service` is
    NAMESPACE/NAME.
    """
    objects = (each.object.rpartition(" ")[2].rpartition("/") for each in refused)
    unread = [f" {name}{f' in namespace {space}' if space else ''} cannot be read: " for space, _, name in objects]
    cut = tuple(problem for problem in problems if not any(text in problem for text in unread))
    mine = [each for each in refused if each.object == f"{SERVICE} {service}"]
    cut = tuple(problem for problem in cut if not any(each.causes(problem) for each in mine))
    if any(problem.startswith(_NO_ENGINE) for problem in problems):
        cut = tuple(problem for problem in cut if not problem.startswith(_NO_RUNTIME))
    return tuple(problem for problem in cut if not (len(problems) > 1 and _WAITS in problem))


def separate_runtime_problem(problems: tuple[str, ...], named: Iterable[Ref]) -> tuple[tuple[str, ...], str]:
    """Return the problems of a service in files without the problem that no runtime fits, and the text of that problem; ""
    if the service does not have it. If the files contain a runtime, the problem is not separated, because that runtime has
    to fit.
    """
    found = next((problem for problem in problems if problem.startswith(_NONE_FITS)), "")
    if not found or any(each.kind in RUNTIMES for each in named):
        return problems, ""
    return tuple(problem for problem in problems if problem != found), found


def without_cluster(problems: Iterable[str], catalog: str, named: Iterable[Ref] = ()) -> tuple[str, ...]:
    """Return the problems of a service in files, rephrased for objects that may exist on a cluster. `catalog` names the
    source of the objects that are not in the files, which contain the objects `named`.
    """
    return tuple(_rephrased(problem, catalog, named) for problem in problems)


def _rephrased(problem: str, catalog: str, named: Iterable[Ref]) -> str:
    if (found := _ABSENT.fullmatch(problem)) is None:
        return problem
    what, question, remedy = found["what"], found["question"] or "", found["remedy"]
    kind, _, name = what.partition(" in namespace ")[0].partition(" ")
    of = (each for each in named if each.namespace and each.name == name and each.kind == kind.removeprefix("Cluster"))
    if (other := next(of, None)) is not None:
        return (
            f"{what} does not exist: {other.kind} {name} is in namespace {other.namespace}, and a service reads only its "
            f"own namespace, so create it there, or write kind: Cluster{other.kind}"
        )
    return (
        f"{what} is neither in these files nor in {catalog}: {question}add -f with its file, or {remedy}; if it is on your "
        "cluster, `ome diff -f` with the same files finds it there"
    )
