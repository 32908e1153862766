"""Rules about the objects in files: what an API server or the operator refuses before any pod exists.

The caller, which reads the files, finds the violations (`Subject.refused`), because a refused object has no pods.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from ome_operator.lint.finding import Finding, Location, Rule, RuleHit, Severity, rule
from ome_operator.lint.subject import Subject


def _of(name: str) -> Callable[[Subject], Iterator[RuleHit]]:
    """Return the check of the rule with the ID `name`: a function that yields the findings of this rule about an object."""

    def check(subject: Subject) -> Iterator[RuleHit]:
        for each in subject.refused:
            if each.rule == name:
                yield RuleHit(Location(each.object, each.field), each.says, each.remedy)

    return check


def _rule(name: str, title: str, *, ignored: str, evidence: str) -> Rule:
    return rule(name, Severity.ERROR, title, ignored=ignored, evidence=evidence)(_of(name))


_LACKS = re.compile(r" (has (no|none of)|must be a map with an?) (?P<fields>[\w, ]{1,200})$")
_INDEX = re.compile(r"\[\d{1,9}\]")


def without_consequences(found: Iterable[Finding]) -> list[Finding]:
    """Return the findings without the consequences of wrong field names. A consequence is a finding which states that a pod
    lacks a field, while the remedy of a finding of `pod-field-unknown` tells the user to write this field.

    An entry of a list may have another index in the pod than in the object, because the operator or a runtime may add
    entries before it. If no consequence has the index of the entry in the object, the first consequence of each service is
    left out.
    """
    found = list(found)
    for cause in [one for one in found if one.rule.id == "pod-field-unknown"]:
        follow = [one for one in found if _follows(one, cause)]
        same = [one for one in follow if _in_pod(_above(cause)).endswith(_lacking(one)[0])]
        told = {one.service: one.hit.says for one in reversed(same or follow)}
        found = [one for one in found if not (one in follow and one.hit.says == told.get(one.service))]
    return found


def _follows(finding: Finding, cause: Finding) -> bool:
    path, fields = _lacking(finding) if finding.rule.id in ("pod-invalid", "refused") else ("", ())
    if not path or _named(finding) != _named(cause) or not set(re.findall(r"\w+", cause.hit.remedy)).intersection(fields):
        return False
    above = _above(cause)
    if path.startswith("spec."):
        return path == above
    part, other = (_INDEX.sub("", each).split(".")[1:2] for each in (finding.hit.place.field, above))
    return part == other and _INDEX.sub("", _in_pod(above)).endswith(f".{_INDEX.sub('', path)}")


def _lacking(found: Finding) -> tuple[str, tuple[str, ...]]:
    """Return (path, fields) for a finding which states that a map lacks a field. The path is the path of the map, in the
    user's object or in the pod, as the finding states it. The map lacks one of the fields. Return ("", ()) for any other
    finding.
    """
    lacks = _LACKS.search(found.hit.says)
    if lacks is None:
        return "", ()
    return found.hit.says[: lacks.start()].rpartition(" ")[2], tuple(lacks["fields"].split(", "))


def _named(finding: Finding) -> str:
    """Return the name of the object of a finding, without its kind and namespace."""
    return re.split("[ /]", finding.hit.place.object)[-1]


def _above(finding: Finding) -> str:
    """Return the path of the map that contains the field of a finding."""
    return finding.hit.place.field.rpartition(".")[0]


def _in_pod(path: str) -> str:
    """Return the path in a pod that corresponds to a path in a user's object: the runner is the first container of a pod."""
    return path.replace(".runner", ".containers[0]")


RULES: tuple[Rule, ...] = (
    _rule(
        "object-refused",
        "The API server refuses the object",
        ignored="`kubectl apply` fails; with `--validate=false`, the server drops unknown fields without a message.",
        evidence="The rule uses the same classes as the CRDs in crds/, which are generated from them; "
        "tests/controlplane/test_gate.py compares the rule with a real API server for every bound and every CEL "
        "rule.",
    ),
    _rule(
        "pod-field-unknown",
        "Kubernetes has no field of this name in a pod",
        ignored="The API server accepts the object, because it does not check the fields of a pod in a component. The "
        "operator reports `InvalidPod` and creates no pods.",
        evidence="The rule knows the fields of the package `kubernetes`, which may be older than your cluster: in this "
        "case skip the rule with --ignore.",
    ),
    _rule(
        "kind-unknown",
        "The operator does not read objects with this apiVersion and kind",
        ignored="`kubectl apply` fails with `no matches for kind`, or another operator reads the object.",
        evidence="The rule knows the kinds of the CRDs in crds/.",
    ),
    _rule(
        "object-twice",
        "The files contain an object twice",
        ignored="`kubectl apply` applies both objects, and the last object takes effect without a message.",
        evidence="`kubectl apply` sends the objects one after the other.",
    ),
    _rule(
        "key-twice",
        "A map contains a key twice",
        ignored="The first value is lost without a message.",
        evidence="YAML 1.2.2, 3.2.1.1: keys of a map are unique; the parser of kubectl keeps the last value.",
    ),
)
