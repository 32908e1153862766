"""The list of all rules, and the function that applies them to a service."""

import re
from collections.abc import Collection, Iterator
from itertools import islice

from ome_operator.api.invalid import split_error
from ome_operator.lint import (
    arguments,
    blocks,
    contradictions,
    disaggregation,
    division,
    experts,
    files,
    kubernetes,
    listeners,
    locations,
    memory,
    model_flags,
    pods,
    policies,
    ranges,
    rendezvous,
    requirements,
    routing,
    scaling,
    vendors,
)
from ome_operator.lint.finding import Finding, Location, Rule, RuleHit, Severity, rule
from ome_operator.lint.subject import Subject


@rule(
    "refused",
    Severity.ERROR,
    "The operator itself refuses to start the service",
    ignored="The service stays unchanged, and its condition shows the error message of this finding.",
    evidence="docs/troubleshooting.md lists every reason.",
)
def operator_problem_hits(subject: Subject) -> Iterator[RuleHit]:
    """Yield a hit for each problem that the operator itself reports in the conditions of the service."""
    for sentence in subject.problems:
        message, remedy = split_error(sentence)
        remedy = remedy or next((form for words, form in _FORMS.items() if words in message), "see docs/troubleshooting.md")
        yield RuleHit(_place(subject, message), message.rstrip("."), remedy.rstrip("."))


_FORMS = {
    "must be a list of strings": "write a list with an entry for each word, such as [--port=30000, --tp-size=8]",
    "must be a list of maps, each with a name": "write a list such as [{name: A}], even for a single entry",
    "must be a list": "write a list, even for a single entry",
    "must be a map with a ": "write a map that has this key",
    "must be a map": "write a map of keys and values",
    "must be a whole number": "write a whole number without quotes",
}
"""Maps a part of a message about the form of a value to the instruction what to write instead."""


def _place(subject: Subject, message: str) -> Location:
    """Return the location of the field that a message names at its beginning. If it names no field, return the spec of the
    service.
    """
    found = re.match(r"(the runtime's )?(spec[\w.\[\]/-]+) ", message)
    if found is None:
        return locations.service(subject)
    return Location(subject.runtime if found[1] else locations.service(subject).object, found[2])


_ELSEWHERE = ("a probe of the workers",)
"""Beginnings of advice messages that are left out here, because another rule reports the same problem."""


@rule(
    "source-unsupported",
    Severity.WARNING,
    "Nothing downloads files from the source of a model",
    ignored="The model stays in the state `Failed`, and pods that need the model stay Pending, unless you copy the files "
    "to nodes and label these nodes.",
    evidence="docs/models-agent.md lists the sources from which agents download. The API accepts the schemes of OME.",
)
def source_unsupported(subject: Subject) -> Iterator[RuleHit]:
    """Yield a hit for a model or fine-tuned weights whose storageUri has a scheme that nothing downloads."""
    if subject.source:
        message, remedy = split_error(subject.source)
        yield RuleHit(Location(locations.service(subject).object, "spec.storage.storageUri"), message, remedy)


@rule(
    "advice",
    Severity.WARNING,
    "The operator itself reports advice about the service",
    ignored="The setting has no effect, or not the effect that its name suggests; the condition Advice shows the message of "
    "this finding.",
    evidence="docs/troubleshooting.md and the pages that the message names describe the advice.",
)
def advice(subject: Subject) -> Iterator[RuleHit]:
    """Yield a hit for each advice that the operator itself reports in the service's condition Advice."""
    messages = [part for part in subject.advice.split("; ") if part and not part.startswith(_ELSEWHERE)]
    if messages:
        yield RuleHit(locations.service(subject), "; ".join(messages).rstrip("."), "follow the advice, or remove the field")


@rule(
    "model-dependent",
    Severity.NOTE,
    "A runtime that no service uses has a finding, but only with some of the models that fit it",
    ignored="With these models, the service has the problem that the finding describes. The runtime may be right for the "
    "other models.",
    evidence="The runtime is checked with each model that its supportedModelFormats admit. A finding that "
    "occurs with all of these models is reported under the rule that it violates.",
)
def model_dependent(subject: Subject) -> Iterator[RuleHit]:
    names = [name for name in RULES if name not in (model_dependent.id, *subject.ignored)]
    count, by_rule = len(subject.variants), _by_model(subject, names)
    for name, found in by_rule.items():
        if len(found) < count:
            model, hit = next(iter(found.items()))
            message = f"with {len(found)} of the {count} models that fit it, the runtime has the finding {name}"
            remedy = "add a service with the model that you serve to the files"
            yield RuleHit(hit.place, f"{message}; with {model}: {hit.says}", remedy)


def _by_model(subject: Subject, names: Collection[str]) -> dict[str, dict[str, RuleHit]]:
    """Return, for a runtime that is checked with several models, the findings that depend on the model. The ID of a rule is
    mapped to a mapping from the kind and name of a model to its first finding. `names` contains the IDs of the rules that
    are applied. Rules of severity NOTE, and rules that have a finding about the runtime without a model, are left out.
    """
    found = dict[str, dict[str, RuleHit]]()
    for name in names if subject.variants else ():
        if RULES[name].severity == Severity.NOTE or next(rule_hits(RULES[name], subject), None) is not None:
            continue
        first = {each.model_name: next(rule_hits(RULES[name], each), None) for each in subject.variants}
        if with_hit := {model: hit for model, hit in first.items() if hit is not None}:
            found[name] = with_hit
    return found


@rule(
    "runtime-elsewhere",
    Severity.WARNING,
    "A service names no runtime, and no runtime in the files or in the catalog fits it",
    ignored="Unless a runtime on the cluster fits, no pods are created, and the condition RuntimeReady states why.",
    evidence="The operator selects among the runtimes of the cluster (docs/choosing.md), but a check of files does not "
    "know these runtimes.",
)
def runtime_elsewhere(subject: Subject) -> Iterator[RuleHit]:
    """Yield a hit if only a runtime that is not known here can serve the service."""
    if subject.elsewhere:
        message, remedy = split_error(subject.elsewhere)
        known = f". If no other runtime exists: {remedy.rstrip('.')}" if remedy else ""
        yield RuleHit(
            locations.service(subject),
            f"{message.rstrip('.')} among the runtimes of these files and of the catalog, but one on your cluster may fit",
            "add -f with the file of the runtime; if the runtime is on your cluster, `ome diff -f` with the same files "
            "finds it there" + known,
        )


@rule(
    "reference-missing",
    Severity.WARNING,
    "An object refers to another object that is neither in the files nor in the catalog",
    ignored="Unless the object is on the cluster, the reference has no effect: a BenchmarkJob waits for its service, no "
    "service accepts the fine-tuned weights, and no accelerator class is selected or excluded.",
    evidence="tests/unit/core/resolve/test_references.py lists every field that contains the name of an object. A service "
    "without its model, runtime, weights or accelerator class is reported by the rule `refused`.",
)
def reference_missing(subject: Subject) -> Iterator[RuleHit]:
    """Yield a hit for each reference to an object that is not known."""
    for field, sentence in subject.dangling_references:
        message, remedy = split_error(sentence)
        yield RuleHit(Location(locations.service(subject).object, field), message, remedy)


FAMILIES: dict[str, tuple[Rule, ...]] = {
    "Whether a cluster accepts the objects": files.RULES,
    "Whether the service can start at all": (
        operator_problem_hits,
        advice,
        source_unsupported,
        runtime_elsewhere,
        reference_missing,
        model_dependent,
    ),
    "Arguments and variables": arguments.RULES,
    "Values and ports": (*ranges.RULES, *listeners.RULES),
    "Combinations of arguments": (*contradictions.RULES, *requirements.RULES),
    "Arguments and the model": model_flags.RULES,
    "Sizes that must divide": (*division.RULES, *blocks.RULES),
    "Ranks of a group": rendezvous.RULES,
    "Memory of a rank": memory.RULES,
    "Experts": experts.RULES,
    "Disaggregation: prefill and decode": disaggregation.RULES,
    "Routers": (*routing.RULES, *policies.RULES),
    "Scaling": scaling.RULES,
    "Pods": pods.RULES,
    "Pods as Kubernetes sees them": (*kubernetes.RULES, *vendors.RULES),
}
"""Maps the title of each family of rules to the rules of the family."""
RULES: dict[str, Rule] = {rule.id: rule for family in FAMILIES.values() for rule in family}
"""Maps the ID of each rule to the rule."""
MOST, LONGEST = 50, 1000
"""Maximum number of findings of a rule in a service, and maximum number of characters of a sentence. More output would
not help the user."""
_ORDER = [*Severity]


def _short(hit: RuleHit) -> RuleHit:
    """Return the hit with its sentences shortened to LONGEST characters."""
    says, remedy = (text if len(text) <= LONGEST else f"{text[:LONGEST]} …" for text in (hit.says, hit.remedy))
    return hit._replace(says=says, remedy=remedy)


def rule_hits(rule: Rule, subject: Subject) -> Iterator[RuleHit]:
    """Yield the violations of a rule, at most `MOST`. A violation is left out if the rule has read a flag whose value is
    unknown, because only a shell or a cluster knows it, or because the flag is given in a wrong spelling.
    """
    for start in subject.launches:
        start.doubted.clear()
    for hit in islice(rule.check(subject), MOST):
        if rule.severity == Severity.NOTE or not any(start.doubted for start in subject.launches):
            yield hit


def check(subject: Subject, ignored: Collection[str] = ()) -> list[Finding]:
    """Return the findings in a service, the most severe first, at most `MOST` of each rule. `ignored` contains the IDs of
    rules to skip, in addition to the IDs that the service's annotation names.
    """
    asked = [rule for name, rule in RULES.items() if name not in subject.ignored.union(ignored)]
    found = [Finding(rule, subject.service, _short(hit)) for rule in asked for hit in rule_hits(rule, subject)]
    for name, with_hit in _by_model(subject, [each.id for each in asked]).items():
        if len(with_hit) == len(subject.variants):
            model, hit = next(iter(with_hit.items()))
            says = f"{hit.says} (with {model}, and with the other models that fit the runtime)"
            found.append(Finding(RULES[name], subject.service, _short(hit._replace(says=says))))
    return sorted(dict.fromkeys(found), key=lambda finding: _ORDER.index(finding.rule.severity))
