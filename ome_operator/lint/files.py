"""Rules about the objects in files: what an API server or the operator refuses before any pod exists.

The caller, which reads the files, finds the violations (`Subject.refused`), because a refused object has no pods.
"""

from collections.abc import Callable, Iterator

from ome_operator.lint.finding import Hit, Location, Rule, Severity, rule
from ome_operator.lint.subject import Subject


def _of(name: str) -> Callable[[Subject], Iterator[Hit]]:
    """Return the check of a rule: a function that yields the findings of this rule about an object."""

    def check(subject: Subject) -> Iterator[Hit]:
        for each in subject.refused:
            if each.rule == name:
                yield Hit(Location(each.object, each.field), each.says, each.remedy)

    return check


def _rule(name: str, title: str, *, ignored: str, evidence: str) -> Rule:
    return rule(name, Severity.ERROR, title, ignored=ignored, evidence=evidence)(_of(name))


RULES: tuple[Rule, ...] = (
    _rule(
        "object-refused",
        "The API server refuses the object",
        ignored="`kubectl apply` fails; with `--validate=false`, the server drops unknown fields without a message.",
        evidence="The CRDs in crds/, which are generated from the classes that this rule uses; "
        "tests/controlplane/test_gate.py compares the rule with a real API server for every bound and every CEL rule.",
    ),
    _rule(
        "pod-field-unknown",
        "Kubernetes has no field of this name in a pod",
        ignored="The API server accepts the object, because it does not check the fields of a pod in a component. The "
        "operator reports `InvalidPod` and creates no pods.",
        evidence="The fields of the package `kubernetes`, which may be older than your cluster: in this case use --ignore.",
    ),
    _rule(
        "kind-unknown",
        "The operator does not read objects with this apiVersion and kind",
        ignored="`kubectl apply` fails with `no matches for kind`, or another operator reads the object.",
        evidence="The kinds of the CRDs in crds/.",
    ),
    _rule(
        "object-twice",
        "The files contain an object twice",
        ignored="`kubectl apply` applies both objects, and the last one takes effect without a message.",
        evidence="`kubectl apply` sends the objects one after the other.",
    ),
    _rule(
        "key-twice",
        "A map contains a key twice",
        ignored="The first value is lost without a message.",
        evidence="YAML 1.2.2, 3.2.1.1: keys of a map are unique; the parser of kubectl keeps the last value.",
    ),
)
