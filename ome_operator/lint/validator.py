"""Apply the rules of `ome lint` to revisions. The result is advice, and the reasons why a new revision must not start.

A revision is rejected only for arguments that SGLang's own argument parser rejects, in a version whose flags are known
exactly. All other findings are advice.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ome_operator import keys
from ome_operator.core.observed.validation import Objection, RevisionUnderTest, ValidationResult
from ome_operator.core.reasons import Reason
from ome_operator.engines import images
from ome_operator.engines.flags import packaged_versions
from ome_operator.lint import arguments
from ome_operator.lint.finding import Location, Rule, RuleHit, Severity
from ome_operator.lint.launch import Launch
from ome_operator.lint.model import gpu_memory, model_facts, node_labels
from ome_operator.lint.rules import RULES, rule_hits
from ome_operator.lint.subject import Role, Subject, subject
from ome_operator.util.visible import make_visible

REFUSING = frozenset(
    rule.id for rule in (arguments.flag_unknown, arguments.flag_removed, arguments.flag_value, arguments.flag_joined)
)
"""Rules that find arguments that SGLang's own parser rejects, so that the engine exits. `make e2e` verifies these rules with
the parser."""
ADVISED, LONGEST = 5, 240
"""Number of findings that a condition shows, and maximum number of characters of each finding. `ome lint SERVICE` shows
all findings."""
KEPT = 4096
"""Maximum number of cached results."""
ALREADY_REPORTED = frozenset({"refused", "advice"})
"""Rules that repeat problems and advice of the operator itself."""
REPORTED = frozenset(name for name, rule in RULES.items() if rule.severity != Severity.NOTE) - ALREADY_REPORTED
"""Rules whose findings are shown in the condition Advice."""
UNCHECKED = frozenset({arguments.version_unknown.id})
"""Rules of severity NOTE whose findings the condition Advice shows nevertheless. They report that the flags of an
engine's version are unknown. The condition does not show these findings for routers, because few images name the version
of their router."""
_ON_SERVICE = (keys.ENGINE_VERSION, keys.LINT_IGNORE)
"""Annotations of a service that change the result of the validation."""


class Validator:
    """Validates revisions, and caches the results.

    The rules run once for a revision. They run again if the revision's router changes, or if the known facts about its model
    or GPUs change.
    """

    def __init__(self, refuse: bool = True) -> None:
        self._refuse = refuse
        self._kept: OrderedDict[tuple[str | int, ...], tuple[tuple[Any, ...], ValidationResult]] = OrderedDict()
        self.looked = 0
        """The number of times that the rules were applied to a revision."""

    def __call__(self, revision_under_test: RevisionUnderTest) -> ValidationResult:
        """Return the result of the validation of a revision. Never raises, because a bug in a rule must not stop a
        service.
        """
        try:
            return self._looked_up(revision_under_test)
        except Exception as error:
            return ValidationResult((_bug(type(error).__name__),))

    def _looked_up(self, revision_under_test: RevisionUnderTest) -> ValidationResult:
        service = revision_under_test.service
        # The name of a revision is a digest of its inputs, and its templates are rendered from these inputs.
        key = (
            service.namespace,
            service.name,
            service.uid,
            revision_under_test.revision,
            len(revision_under_test.parts),
            revision_under_test.refusals_only,
        )
        known = (
            tuple(service.annotations.get(name) for name in _ON_SERVICE),
            tuple(part.pods for part in revision_under_test.parts if part.component == keys.ROUTER),
            model_facts(revision_under_test.model, revision_under_test.well_known)
            if revision_under_test.model is not None
            else None,
            gpu_memory(
                revision_under_test.inputs,
                revision_under_test.runtime,
                revision_under_test.parts,
                revision_under_test.accelerators,
            ),
            node_labels(revision_under_test.accelerators),
        )
        before = self._kept.get(key)
        if before is None or before[0] != known:
            self.looked += 1
            _, _, model, memory, labels = known
            looked_at = subject(
                service, revision_under_test.runtime, revision_under_test.parts, model, packaged_versions(), memory, labels
            )
            found = (
                ValidationResult(refused=refusals(looked_at)) if revision_under_test.refusals_only else _verdict(looked_at)
            )
            self._kept[key] = before = known, found
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return before[1] if self._refuse else before[1]._replace(refused=())


def _verdict(looked_at: Subject) -> ValidationResult:
    engines = replace(looked_at, roles=tuple(role for role in looked_at.roles if role.component != keys.ROUTER))
    failed = list[str]()
    found = [*_found(looked_at, REPORTED, failed), *_found(engines, UNCHECKED, failed)]
    found.sort(key=lambda each: _ORDER.index(each[0].severity))
    messages = list(dict.fromkeys(_sentence(rule, hit) for rule, hit in found))
    name = looked_at.service.rpartition("/")[2]
    more = [f"{len(messages) - ADVISED} more findings: `ome lint {name}` lists them"] if len(messages) > ADVISED else []
    unknown = sorted(looked_at.ignored - RULES.keys())
    about = (
        [
            f"annotation {keys.LINT_IGNORE} names {', '.join(unknown)}, but `ome lint` has no such rule: use the names in "
            "docs/rules.md"
        ]
        if unknown
        else []
    )
    bugs = [_bug(", ".join(failed))] if failed else []
    worst = _GRADES.get(found[0][0].severity, Reason.NO_EFFECT) if found else Reason.NO_EFFECT
    return ValidationResult((*messages[:ADVISED], *more, *about, *bugs), refusals(looked_at), worst)


def refusals(looked_at: Subject) -> tuple[Objection, ...]:
    """Return the reasons why a new revision must not start. A mistake that several roles contain is one reason, which names
    all places.
    """
    found: dict[tuple[Rule, str, str], dict[Location, None]] = {}
    for rule, hit in _found(certain_part(looked_at), REFUSING, []):
        if _ends(rule, hit):
            found.setdefault((rule, hit.says, hit.remedy), {})[hit.place] = None
    return tuple(_refused(*what, places) for what, places in found.items())


_ORDER = [*Severity]
_GRADES = {Severity.ERROR: Reason.LINT_ERRORS, Severity.WARNING: Reason.LINT_WARNINGS}
"""Maps the severity of a finding to the reason of the condition Advice."""


def _bug(description: str) -> str:
    return f"rules of `ome lint` failed ({description}). This is a bug of the operator: please report it"


def _found(looked_at: Subject, only: frozenset[str], failed: list[str]) -> Iterator[tuple[Rule, RuleHit]]:
    """Yield the findings of the rules in `only`. If a rule raises an error, its name is appended to `failed`, and the
    other rules still run.
    """
    for name, rule in RULES.items():
        if name not in only or name in looked_at.ignored:
            continue
        try:
            yield from [(rule, hit) for hit in rule_hits(rule, looked_at)]
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__}")


def certain_part(looked_at: Subject) -> Subject:
    """Return the part of a service for which a revision may be rejected: SGLang engines whose version is known exactly
    and that are not started by a shell.
    """

    def sure(start: Launch | None) -> Launch | None:
        exact = start is not None and start.engine == "sglang" and start.line is not None and not start.shell
        return start if exact and start is not None and images.is_exact(start.image, start.version) else None

    def only(role: Role) -> Role:
        return replace(role, launch=sure(role.launch), others=sure(role.others), partly=())

    engines = (role for role in looked_at.roles if role.component != keys.ROUTER)
    return replace(looked_at, roles=tuple(only(role) for role in engines))


def _ends(rule: Rule, hit: RuleHit) -> bool:
    """Return whether SGLang's parser rejects the argument of this hit.

    The result is False only for hits of the rule `flag-joined` without a fix. This rule also reports values that contain
    flags. Such a value may be intended, and the parser accepts it.
    """
    return rule is not arguments.flag_joined or hit.fix is not None


def _sentence(rule: Rule, hit: RuleHit) -> str:
    return _short(f"{rule.id}: {hit.says} ({hit.remedy})")


def _refused(rule: Rule, says: str, remedy: str, places: Iterable[Location]) -> Objection:
    fields: dict[str, list[str]] = {}
    for place in places:
        fields.setdefault(make_visible(place.object), []).append(make_visible(place.field))
    where = _short("; ".join(f"{name}: {', '.join(of)}" for name, of in fields.items()), LONGEST // 2)
    return Objection(rule.id, says, f"{_short(f'{rule.id}: {says}; {remedy}', LONGEST - len(where))} ({where})")


def _short(text: str, longest: int = LONGEST) -> str:
    """Return a sentence for a condition: shortened to `longest` characters, and with control characters made visible."""
    text = make_visible(text)
    return text if len(text) <= longest else f"{text[: longest - 2]} …"
