"""All rules, and what they find in a service."""

from collections.abc import Collection, Iterator
from itertools import islice

from ome_operator.lint import (
    apart,
    arguments,
    contradictions,
    division,
    experts,
    gathering,
    kubernetes,
    memory,
    places,
    pods,
    routing,
    suits,
)
from ome_operator.lint.finding import Finding, Hit, Rule, Severity, rule
from ome_operator.lint.subject import Subject


@rule(
    "refused",
    Severity.ERROR,
    "The operator itself would not start it",
    ignored="The service stays as it is, and its condition says this sentence.",
    evidence="docs/troubleshooting.md has every reason.",
)
def refused(subject: Subject) -> Iterator[Hit]:
    """What stands in the conditions already."""
    for sentence in subject.problems:
        said, _, remedy = sentence.partition(": ")
        yield Hit(places.service(subject), said.rstrip("."), remedy.rstrip(".") or "see docs/troubleshooting.md")


_ELSEWHERE = ("nothing scales", "a probe of the workers")
"""Beginnings of advice that is no fault, or that a rule finds by itself."""


@rule(
    "advice",
    Severity.WARNING,
    "The operator itself has advice",
    ignored="What is written has no effect, or another than it seems; the condition Advice says this sentence.",
    evidence="docs/troubleshooting.md, and the pages that the sentences name.",
)
def advice(subject: Subject) -> Iterator[Hit]:
    """What stands in the condition Advice already."""
    told = [part for part in subject.advice.split("; ") if part and not part.startswith(_ELSEWHERE)]
    if told:
        yield Hit(places.service(subject), "; ".join(told).rstrip("."), "do what it says, or take the field out")


FAMILIES: dict[str, tuple[Rule, ...]] = {
    "Whether it can start at all": (refused, advice),
    "Arguments and variables": arguments.RULES,
    "Arguments together": contradictions.RULES,
    "Arguments and the model": suits.RULES,
    "What divides": division.RULES,
    "Ranks of a group": gathering.RULES,
    "Memory of a rank": memory.RULES,
    "Experts": experts.RULES,
    "Prefill and decode": apart.RULES,
    "Routers": routing.RULES,
    "Pods": pods.RULES,
    "Pods as Kubernetes sees them": kubernetes.RULES,
}
"""Title -> rules."""
RULES: dict[str, Rule] = {rule.id: rule for family in FAMILIES.values() for rule in family}
"""By id."""
MOST, LONGEST = 50, 1000
"""Findings of a rule in a service, and characters of a sentence: more help nobody."""
_ORDER = [*Severity]


def _short(hit: Hit) -> Hit:
    """A hit whose sentences a person can read, whatever stands in the file."""
    says, remedy = (text if len(text) <= LONGEST else f"{text[:LONGEST]} …" for text in (hit.says, hit.remedy))
    return hit._replace(says=says, remedy=remedy)


def check(subject: Subject, ignored: Collection[str] = ()) -> list[Finding]:
    """What is found in a service, the worst first, at most `MOST` of a rule; `ignored`: ids of rules that are left out,
    as those are that the service itself names.
    """
    asked = [rule for name, rule in RULES.items() if name not in subject.ignored.union(ignored)]
    hits = ((rule, hit) for rule in asked for hit in islice(rule.check(subject), MOST))
    found = [Finding(rule, subject.service, _short(hit)) for rule, hit in hits]
    return sorted(dict.fromkeys(found), key=lambda finding: _ORDER.index(finding.rule.severity))
