"""Rules about arguments by themselves: what a version does not know, will lose, or takes otherwise."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from ome_operator.engines.flags import SWITCH, mistake, replaced
from ome_operator.lint import places
from ome_operator.lint.finding import Fix, Hit, Rule, Severity, rule
from ome_operator.lint.launch import ROUTER, Argument, Launch, references
from ome_operator.lint.subject import Role, Subject

PARSER = (
    "The argument parser of the version itself, which `ome_operator/engines/extract.py` reads; `make e2e` asks it again."
)
_INSIDE = re.compile(r"\s--[a-z][\w-]+.{0,80}", re.S)
_HOLDS_FLAGS = frozenset({"--sidecar-args", "--chat-template", "--completion-template"})
"""Flags whose value may hold words that begin like a flag."""
ENDS = "The engine ends at once with code 2 and says `unrecognized arguments`; the group is recycled for it."


def known(subject: Subject) -> Iterator[tuple[Role, Launch, Argument]]:
    """Every argument of a program whose flags are known exactly, on all ranks."""
    for role, start in every(subject):
        if start.line is not None:
            yield from ((role, start, given) for given in start.arguments if given.word.startswith("--"))


def every(subject: Subject) -> Iterator[tuple[Role, Launch]]:
    """Every program that is known, of rank 0 and of the others."""
    for role in subject.roles:
        yield from ((role, start) for start in (role.launch, role.others) if start is not None)


@rule(
    "version-unknown",
    Severity.NOTE,
    "The flags of the image's version are not known",
    ignored="Nothing is said about flags: no wrong or removed flag is found.",
    evidence="The tag of the image, or the annotation `ome.io/engine-version`, and the files of ome_operator/engines/data.",
)
def version_unknown(subject: Subject) -> Iterator[Hit]:
    for role, start in subject.launched():
        if start.line is not None:
            continue
        known = ", ".join(subject.versions.of(start.engine)) or "no version"
        what = (
            f"{start.engine} {start.version}"
            if start.version
            else f"the version of {start.engine} in {start.image or 'no image'}"
        )
        said = f"{what} is not known here ({known}), so nothing is said about its flags"
        annotation = "the annotation ome.io/engine-version on the component says it"
        how = f"--engine-data names a folder with {start.engine}-{start.version}.json" if start.version else annotation
        yield Hit(places.field(role, "image"), said, how)


def _gone(subject: Subject, start: Launch, given: Argument) -> tuple[str, ...]:
    """Other versions that have a flag which this version does not know."""
    return subject.versions.elsewhere(start.engine, given.word)


@rule(
    "flag-unknown",
    Severity.ERROR,
    "No version that is known has this flag",
    ignored=ENDS,
    evidence=PARSER,
)
def flag_unknown(subject: Subject) -> Iterator[Hit]:
    for role, start, given in known(subject):
        if given.flag is not None or given.joined or start.line is None or _gone(subject, start, given):
            continue
        flags = start.line.flags
        begun = sorted(spelling for spelling in flags if spelling.startswith(given.word))
        place = places.argument(role, given)
        if len(begun) > 1 and start.line.abbreviations:
            yield Hit(
                place, f"{given.word} is the beginning of {', '.join(begun[:4])}", f"write {begun[0]} or another of them"
            )
            continue
        close = get_close_matches(given.word, flags, 1, 0.8)
        remedy = f"write {close[0]}" if close else "take it out, or take a version that has it"
        fix = Fix(given.word, close[0]) if close else None
        yield Hit(place, f"{start.engine} {start.version} has no {given.word}", remedy, fix)


@rule(
    "flag-removed",
    Severity.ERROR,
    "Another version has this flag, and this version does not",
    ignored=ENDS,
    evidence=PARSER,
)
def flag_removed(subject: Subject) -> Iterator[Hit]:
    for role, start, given in known(subject):
        if given.flag is None and not given.joined and (versions := _gone(subject, start, given)):
            instead = replaced(start.engine).get(given.word, "")
            said = f"{start.engine} {start.version} has no {given.word}; {', '.join(versions)} had it or has it"
            exact = instead and "…" not in instead and " N" not in instead and " NAME" not in instead
            fix = Fix(given.written, instead.replace(" ", "=")) if exact and not given.values else None
            yield Hit(places.argument(role, given), said, f"write {instead}" if instead else "take it out", fix)


@rule(
    "flag-deprecated",
    Severity.WARNING,
    "The version warns that it will lose this flag",
    ignored="It works today. A later image ends at it.",
    evidence=PARSER,
)
def flag_deprecated(subject: Subject) -> Iterator[Hit]:
    for role, start, given in known(subject):
        if given.flag is not None and given.flag.deprecated:
            instead = replaced(start.engine).get(given.flag.name) or given.flag.deprecated
            simple = instead.startswith("--") and not any(mark in instead for mark in " <{…")
            fix = Fix(given.written, instead) if simple and given.flag.takes == SWITCH else None
            said = f"{given.word} is deprecated in {start.engine} {start.version}"
            yield Hit(places.argument(role, given), said, f"write {instead}", fix)


@rule(
    "flag-value",
    Severity.ERROR,
    "What stands behind a flag is not what the version takes",
    ignored="The engine ends at once with code 2; the group is recycled for it.",
    evidence=PARSER,
)
def flag_value(subject: Subject) -> Iterator[Hit]:
    for role, start, given in known(subject):
        # In a shell a value may be made by the shell itself.
        words = [word for word in given.values if not (start.shell and ("`" in word or "$" in word))]
        if given.flag is None or given.joined or (start.shell and len(words) < len(given.values)):
            continue
        if given.flag.refused:
            yield Hit(places.argument(role, given), f"{given.word} is refused: {given.flag.refused}", "take it out")
        elif said := mistake(given.flag, words):
            choices = given.flag.choices
            close = get_close_matches(words[0], choices, 1) if choices and words else []
            fix = Fix(given.written, f"{given.word}={close[0]}") if close and "=" in given.written else None
            remedy = f"write {close[0]}" if close else f"{given.flag.help[:200] or 'correct the value'}".rstrip(".")
            yield Hit(places.argument(role, given), f"{given.word} {said}", remedy, fix)


@rule(
    "flag-joined",
    Severity.ERROR,
    "A flag and its value, or several flags, stand in the same argument with a space between them",
    ignored="The engine takes both for a single word, which it does not know, and ends with code 2.",
    evidence="argparse takes a word with a space for no flag. SGLang 0.5.23 ends at `--tp 8` (`make e2e` asks its parser).",
)
def flag_joined(subject: Subject) -> Iterator[Hit]:
    for role, _, given in known(subject):
        if not given.joined and (rest := _more(given)):
            said = f'other arguments stand in the value of {given.word}: "{rest}"'
            yield Hit(places.argument(role, given), said, "write each argument as an item of the list")
        if given.joined:
            new = f"{given.word}={' '.join(given.values)}"
            yield Hit(
                places.argument(role, given),
                f'"{given.written}" is a single argument',
                f"write {new}",
                Fix(given.written, new),
            )


def _more(given: Argument) -> str:
    """The flags that stand in a value, "" where none does."""
    found = (_INSIDE.search(value) for value in given.values if given.word not in _HOLDS_FLAGS)
    return next((item[0].strip() for item in found if item), "")


@rule(
    "flag-twice",
    Severity.WARNING,
    "A flag is given twice with different values",
    ignored="The last counts, whatever a reader sees first.",
    evidence="argparse keeps the last value of an option that it meets again.",
)
def flag_twice(subject: Subject) -> Iterator[Hit]:
    for role, start in every(subject):
        seen: dict[str, Argument] = {}
        for given in start.arguments:
            name = given.flag.name if given.flag else given.word
            before = seen.get(name)
            several = start.engine == ROUTER and not (given.flag and given.flag.type in ("int", "float"))
            if before is not None and before.values != given.values and not several:
                said = f"{before.written} and {given.written} are both given"
                yield Hit(places.argument(role, given), said, f"keep either; now {given.written} counts")
            seen[name] = given


@rule(
    "variable-missing",
    Severity.ERROR,
    "An argument refers to a variable that the container does not have",
    ignored="The kubelet leaves the reference as it is, and the engine reads `$(NAME)` to the letter.",
    evidence="Kubernetes, field `args` of a container: references to variables that do not exist are left unchanged.",
)
def variable_missing(subject: Subject) -> Iterator[Hit]:
    for role, start in every(subject):
        missing = sorted(references(start.words) - start.names) if not start.open and not start.shell else []
        for name in missing:
            close = get_close_matches(name, sorted(start.names), 1, 0.7)
            given = next((item for item in start.arguments if f"$({name})" in " ".join((item.written, *item.values))), None)
            place = places.argument(role, given) if given is not None else places.arguments(role)
            remedy = f"write $({close[0]})" if close else f"add a variable {name}, or write the value"
            yield Hit(
                place,
                f"$({name}) is no variable of this container",
                remedy,
                Fix(f"$({name})", f"$({close[0]})") if close else None,
            )


@rule(
    "template-left",
    Severity.WARNING,
    "An argument holds `{{ … }}`",
    ignored="Nothing is a template here: the engine reads the braces to the letter.",
    evidence="docs/architecture.md, Merge; KServe fills such places, this operator and OME do not.",
)
def template_left(subject: Subject) -> Iterator[Hit]:
    for role, start in subject.launched():
        for given in start.arguments:
            word = next((word for word in (given.written, *given.values) if "{{" in word and "}}" in word), None)
            if word is not None and given.word not in ("--chat-template",):
                remedy = "write $(MODEL_PATH) for the model's directory, $(INFERENCESERVICE_NAME) for the service's name"
                yield Hit(places.argument(role, given), f"{word} holds a place that nobody fills", remedy)


@rule(
    "variable-unread",
    Severity.WARNING,
    "The version reads no variable of this name",
    ignored="It has no effect, and nobody is told.",
    evidence="The variables that the version declares, and those that its files look up; "
    "`ome_operator/engines/extract.py` lists them.",
)
def variable_unread(subject: Subject) -> Iterator[Hit]:
    for role, start in subject.launched("sglang"):
        variables = start.line.variables if start.line is not None else {}
        for name in sorted(start.names if variables else ()):
            if name.startswith("SGLANG_") and name not in variables:
                close = get_close_matches(name, variables, 1, 0.85)
                remedy = f"write {close[0]}" if close else "take it out"
                yield Hit(places.variable(role, name), f"sglang {start.version} does not read {name}", remedy)


RULES: tuple[Rule, ...] = (
    version_unknown,
    flag_unknown,
    flag_removed,
    flag_deprecated,
    flag_value,
    flag_joined,
    flag_twice,
    variable_missing,
    template_left,
    variable_unread,
)
