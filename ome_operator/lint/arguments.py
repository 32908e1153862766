"""Rules about single arguments: flags that a version lacks, will remove, or interprets in another way."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from ome_operator.engines.flags import SWITCH, replacements, translations, usage_error
from ome_operator.engines.servers import known_servers
from ome_operator.lint import locations
from ome_operator.lint.finding import AutomaticFix, Rule, RuleHit, Severity, rule
from ome_operator.lint.launch import ROUTERS, Argument, Launch, closest_flag, joined_flags, references
from ome_operator.lint.shell import has_unknown_value, names_in
from ome_operator.lint.subject import Role, Subject

PARSER = "The argument parser of this version. `ome_operator/engines/extract.py` reads its flags; `make e2e` verifies them."
ENDS = "The engine exits at once with code 2 and `unrecognized arguments`, and its group is recycled."


def known_arguments(subject: Subject) -> Iterator[tuple[Role, Launch, Argument]]:
    """Yield (role, program, flag) for every flag that is given to a program whose version has known flags. The programs are
    those of `all_launches`.
    """
    for role, start in all_launches(subject):
        if start.line is not None:
            yield from ((role, start, given) for given in start.arguments if given.word.startswith("--"))


def all_launches(subject: Subject) -> Iterator[tuple[Role, Launch]]:
    """Yield every known program: the program of rank 0 of each role, the program of its other ranks, and the programs that
    scripts start.
    """
    for role in subject.roles:
        yield from ((role, start) for start in (role.launch, role.others, *role.partly) if start is not None)


@rule(
    "script-unread",
    Severity.NOTE,
    "The arguments that a shell script passes cannot be read with certainty",
    ignored="The rule checks each flag that it can read on its own. It does not check sizes, ranks, ports and memory.",
    evidence="A script may start a program in several branches, or pass further arguments in variables.",
)
def script_unread(subject: Subject) -> Iterator[RuleHit]:
    for role in subject.roles:
        if role.unread:
            remedy = (
                "start the program with command and args, and use the variables $(LWS_WORKER_INDEX) and $(LWS_GROUP_SIZE)"
            )
            yield RuleHit(locations.arguments(role), f"{role.title}: {role.unread}", remedy)
        start = role.launch
        for given in start.arguments if start is not None and start.shell else ():
            names = frozenset[str]().union(*map(names_in, given.values))
            if start is not None and any(map(has_unknown_value, given.values)) and not names <= start.names:
                message = (
                    f"{role.title}: the value of {given.word} is {' '.join(given.values)[:80]}, which only the shell knows"
                )
                yield RuleHit(locations.argument(role, given), message, "write the value, or a variable of the container")


@rule(
    "version-unknown",
    Severity.NOTE,
    "The flags of the image's version are unknown",
    ignored="The rules do not check flags, so they find no wrong or removed flag.",
    evidence=(
        "The version comes from the tag of the image or from the annotation `ome.io/engine-version`. The files in "
        "ome_operator/engines/data contain the flags of each version."
    ),
)
def version_unknown(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched():
        if start.line is not None:
            continue
        known = ", ".join(subject.versions.versions_of(start.engine)) or "no version"
        what = (
            f"{start.engine} {start.version} is unknown"
            if start.version
            else f"the version of {start.engine} in {start.image} is unknown"
            if start.image
            else f"{start.engine} has no image, so its version is unknown"
        )
        message = f"{what} (known versions: {known}), and the flags are not checked"
        annotation = (
            "use an image whose tag names the version, or set the annotation ome.io/engine-version of the component to it"
        )
        how = (
            (f"pass --engine-data with a folder that contains {start.engine}-{start.version}.json")
            if start.version
            else annotation
        )
        yield RuleHit(locations.field(role, "image"), message, how)


def _gone(subject: Subject, start: Launch, argument: Argument) -> tuple[str, ...]:
    """Return the other known versions of the program `start` that have the flag of the argument `argument`."""
    return subject.versions.versions_with_flag(start.engine, argument.word)


@rule(
    "flag-unknown",
    Severity.ERROR,
    "No known version of the engine has this flag",
    ignored=ENDS,
    evidence=PARSER,
)
def flag_unknown(subject: Subject) -> Iterator[RuleHit]:
    for role, start, given in known_arguments(subject):
        if given.flag is not None or given.joined or start.line is None or _gone(subject, start, given):
            continue
        flags = start.line.flags
        begun = sorted(spelling for spelling in flags if spelling.startswith(given.word))
        place = locations.argument(role, given)
        if len(begun) > 1 and start.line.abbreviations:
            yield RuleHit(
                place,
                f"{given.word} is ambiguous, because it is an abbreviation of {', '.join(begun[:4])}",
                f"write one of these flags in full, such as {begun[0]}",
            )
            continue
        same = translations(start.engine).get(given.word, "")
        close = closest_flag(given.word, start.line) if not same else ""
        remedy = f"write {close}" if close else "remove the flag, or use a version of the engine that has it"
        remedy = (f"write {same}" if same.startswith("--") else same) or remedy
        fix = AutomaticFix(given.word, close) if close else None
        yield RuleHit(place, f"{start.engine} {start.version} has no flag {given.word}", remedy, fix)


@rule(
    "flag-removed",
    Severity.ERROR,
    "Another version of the engine has this flag, but this version does not",
    ignored=ENDS,
    evidence=PARSER,
)
def flag_removed(subject: Subject) -> Iterator[RuleHit]:
    for role, start, given in known_arguments(subject):
        if given.flag is None and not given.joined and (versions := _gone(subject, start, given)):
            instead = replacements(start.engine).get(given.word, "")
            message = f"{start.engine} {start.version} has no flag {given.word}, which exists in {', '.join(versions)}"
            exact = instead and "…" not in instead and " N" not in instead and " NAME" not in instead
            fix = AutomaticFix(given.written, instead.replace(" ", "=")) if exact and not given.values else None
            yield RuleHit(
                locations.argument(role, given), message, f"write {instead}" if instead else "remove the flag", fix
            )


@rule(
    "flag-deprecated",
    Severity.WARNING,
    "This version of the engine warns that the flag will be removed",
    ignored="The flag works in this version. A later version will exit if the flag is given.",
    evidence=PARSER,
)
def flag_deprecated(subject: Subject) -> Iterator[RuleHit]:
    for role, start, given in known_arguments(subject):
        if given.flag is not None and given.flag.deprecated:
            instead = replacements(start.engine).get(given.flag.name) or given.flag.deprecated
            simple = instead.startswith("--") and not any(mark in instead for mark in " <{…")
            fix = AutomaticFix(given.written, instead) if simple and given.flag.takes == SWITCH else None
            message = f"{given.word} is deprecated in {start.engine} {start.version}"
            yield RuleHit(locations.argument(role, given), message, f"write {instead}", fix)


@rule(
    "flag-value",
    Severity.ERROR,
    "The value of a flag is invalid in this version of the engine",
    ignored="The engine exits at once with code 2, and its group is recycled.",
    evidence=PARSER,
)
def flag_value(subject: Subject) -> Iterator[RuleHit]:
    for role, start, given in known_arguments(subject):
        # A shell may compute the value itself.
        words = [word for word in given.values if not (start.shell and has_unknown_value(word))]
        if given.flag is None or given.joined or (start.shell and len(words) < len(given.values)):
            continue
        if given.flag.refused:
            yield RuleHit(
                locations.argument(role, given), f"{given.word} is rejected: {given.flag.refused}", "remove the flag"
            )
        elif error := usage_error(given.flag, words):
            choices = given.flag.choices
            close = get_close_matches(words[0], choices, 1) if choices and words else []
            fix = AutomaticFix(given.written, f"{given.word}={close[0]}") if close and "=" in given.written else None
            remedy = f"write {close[0]}" if close else _value_remedy(given)
            yield RuleHit(locations.argument(role, given), f"{given.word} {error}", remedy, fix)


def _value_remedy(argument: Argument) -> str:
    """Return the instruction that corrects the value of a flag, with the engine's description of the flag."""
    assert argument.flag is not None
    if argument.flag.takes == SWITCH:
        return f"write {argument.word} without a value, or remove the flag"
    about = argument.flag.help[:200].rstrip(".")
    return f"correct the value of {argument.word}{f'; the help of the engine describes it: {about}' if about else ''}"


@rule(
    "flag-joined",
    Severity.ERROR,
    "A flag and its value, or several flags, are written in a single argument with a space between them",
    ignored="The engine reads the argument as a single unknown word, and exits with code 2.",
    evidence="argparse does not recognize a word with a space as a flag. SGLang 0.5.23 exits at `--tp 8` (`make e2e` "
    "verifies this with its parser).",
)
def flag_joined(subject: Subject) -> Iterator[RuleHit]:
    for role, _, given in known_arguments(subject):
        if not given.joined and (rest := joined_flags(given)):
            message = f'the value of {given.word} contains other arguments: "{rest}"'
            yield RuleHit(locations.argument(role, given), message, "write each argument as its own item of the list")
        if given.joined:
            new = f"{given.word}={' '.join(given.values)}"
            several = any(word.startswith("--") for value in given.values for word in value.split())
            yield RuleHit(
                locations.argument(role, given),
                f'"{given.written}" is written as a single argument',
                "write each argument as its own item of the list" if several else f"write {new}",
                None if several else AutomaticFix(given.written, new),
            )


@rule(
    "flag-twice",
    Severity.WARNING,
    "A flag is given twice with different values",
    ignored="The engine uses only the last value, although a reader may expect the first value.",
    evidence="argparse keeps the last value of a repeated option.",
)
def flag_twice(subject: Subject) -> Iterator[RuleHit]:
    for role, start in all_launches(subject):
        seen: dict[str, Argument] = {}
        for given in start.arguments:
            name = given.flag.name if given.flag else given.word
            before = seen.get(name)
            several = start.engine in ROUTERS and not (given.flag and given.flag.type in ("int", "float"))
            if before is not None and before.values != given.values and not several:
                message = f"{before.written} and {given.written} are both given"
                yield RuleHit(
                    locations.argument(role, given), message, f"remove one of the two flags; the engine uses {given.written}"
                )
            seen[name] = given


@rule(
    "variable-missing",
    Severity.ERROR,
    "An argument refers to a variable that the container does not have",
    ignored="The kubelet does not expand the reference, so the engine gets the text `$(NAME)`.",
    evidence="Kubernetes, field `args` of a container: references to variables that do not exist are left unchanged.",
)
def variable_missing(subject: Subject) -> Iterator[RuleHit]:
    for role, start in all_launches(subject):
        missing = sorted(references(start.words) - start.names) if not start.open and not start.shell else []
        for name in missing:
            close = get_close_matches(name, sorted(start.names), 1, 0.7)
            given = next((item for item in start.arguments if f"$({name})" in " ".join((item.written, *item.values))), None)
            place = locations.argument(role, given) if given is not None else locations.arguments(role)
            remedy = f"write $({close[0]})" if close else f"add a variable {name}, or write the value itself"
            yield RuleHit(
                place,
                f"$({name}) refers to a variable that the container does not have",
                remedy,
                AutomaticFix(f"$({name})", f"$({close[0]})") if close else None,
            )


_SHELL_FORM = re.compile(r"\$(?:\{([A-Z][A-Z0-9_]*)\}|([A-Z][A-Z0-9_]*))")


@rule(
    "variable-unexpanded",
    Severity.ERROR,
    "An argument refers to a variable in the notation of a shell, but no shell reads it",
    ignored="The kubelet expands only `$(NAME)`, so the engine gets the text `${NAME}`.",
    evidence="Kubernetes, field `args` of a container: only references of the form $(VAR_NAME) are expanded.",
)
def variable_unexpanded(subject: Subject) -> Iterator[RuleHit]:
    for role, start in all_launches(subject):
        for given in start.arguments if not start.shell else ():
            for found in _SHELL_FORM.finditer(" ".join((given.written, *given.values))):
                name = found[1] or found[2]
                if name in start.names:
                    message = f"{found[0]} is not expanded, because no shell reads the arguments"
                    yield RuleHit(
                        locations.argument(role, given), message, f"write $({name})", AutomaticFix(found[0], f"$({name})")
                    )


@rule(
    "template-left",
    Severity.WARNING,
    "An argument contains a template expression `{{ … }}`",
    ignored="Templates are not expanded, so the engine gets the text with the braces.",
    evidence="Nothing expands templates in arguments (docs/architecture.md, Merge); KServe does, but this operator and "
    "OME do not.",
)
def template_left(subject: Subject) -> Iterator[RuleHit]:
    for role, start in subject.launched():
        for given in start.arguments:
            word = next((word for word in (given.written, *given.values) if "{{" in word and "}}" in word), None)
            if word is not None and given.word not in ("--chat-template",):
                remedy = "write $(MODEL_PATH) for the model's directory, $(INFERENCESERVICE_NAME) for the service's name"
                yield RuleHit(
                    locations.argument(role, given), f"{word} contains a template expression, which is not expanded", remedy
                )


@rule(
    "variable-unread",
    Severity.WARNING,
    "This version of the engine does not read a variable of this name",
    ignored="The variable has no effect, without any message.",
    evidence=(
        "The names come from the list of variables that the source code of this version declares or reads, made by "
        "`ome_operator/engines/extract.py`."
    ),
)
def variable_unread(subject: Subject) -> Iterator[RuleHit]:
    """Yield the environment variables that the version of their program does not read, except the variables that the
    operator adds for every version.
    """
    for role, start in subject.launched("sglang"):
        variables = start.line.variables if start.line is not None else {}
        ours = {each.name for one in known_servers() if one.name == start.engine for each in one.env}
        for name in sorted(start.names - ours if variables else ()):
            if name.startswith("SGLANG_") and name not in variables:
                close = get_close_matches(name, variables, 1, 0.85)
                remedy = f"write {close[0]}" if close else "remove the variable"
                yield RuleHit(locations.variable(role, name), f"sglang {start.version} does not read {name}", remedy)


RULES: tuple[Rule, ...] = (
    version_unknown,
    script_unread,
    flag_unknown,
    flag_removed,
    flag_deprecated,
    flag_value,
    flag_joined,
    flag_twice,
    variable_missing,
    variable_unexpanded,
    template_left,
    variable_unread,
)
