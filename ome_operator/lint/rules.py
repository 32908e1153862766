"""All rules, and what they find in a service."""

from collections.abc import Collection, Iterator

from ome_operator.lint import apart, arguments, division, experts, memory, places, pods
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


FAMILIES: dict[str, tuple[Rule, ...]] = {
    "Whether it can start at all": (refused,),
    "Arguments and variables": arguments.RULES,
    "What divides": division.RULES,
    "Memory of a rank": memory.RULES,
    "Experts": experts.RULES,
    "Prefill and decode": apart.RULES,
    "Pods": pods.RULES,
}
"""Title -> rules."""
RULES: dict[str, Rule] = {rule.id: rule for family in FAMILIES.values() for rule in family}
"""By id."""
_ORDER = [*Severity]


def check(subject: Subject, ignored: Collection[str] = ()) -> list[Finding]:
    """What is found in a service, the worst first; `ignored`: ids of rules that are left out."""
    asked = [rule for name, rule in RULES.items() if name not in ignored]
    found = [Finding(rule, subject.service, hit) for rule in asked for hit in rule.check(subject)]
    return sorted(dict.fromkeys(found), key=lambda finding: _ORDER.index(finding.rule.severity))
