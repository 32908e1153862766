"""Reads the simple commands of a shell script, as far as they can be read with certainty.

This is not a shell. A value that only a shell can compute keeps its `$` or backquote, so that callers can tell that it is
unknown. A command inside of a branch or of a function is marked, because it may not run, or run only in some pods.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import NamedTuple

_OPERATOR = re.compile(r"\d*(?:<<<|<<-?|>>|>\||[<>]&|[<>])|&>>?|\|\||&&|;;&?|[;|&()\n]")
_EXPANSION = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(:?)-[^{}$`]*)?\})")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.S)
_DECLARES = frozenset({"export", "declare", "local", "readonly", "typeset"})
_SETS = frozenset({"read", "unset", "for", "select", "mapfile", "getopts"})
"""Shell commands whose arguments are names of variables that the command changes."""
_ENDS = {"if": "fi", "case": "esac", "while": "done", "until": "done", "for": "done", "select": "done", "{": "}"}
"""Maps each word that begins a compound command to the word that ends the command."""
_UNSURE = frozenset({"if", "case", "for", "select"})
"""Words that begin a compound command whose commands may not run, or run several times with different values."""
_LOOPS = frozenset({"while", "until"})
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_SCRIPT_OPTION = re.compile(r"-[a-zA-Z]*c[a-zA-Z]*")
"""Pattern of the options of a shell after which its script follows."""
_SUBSTITUTED = re.compile(r"[<>]\(")
"""Beginning of a process substitution, which stands for the path of a file."""
_NESTED = 3
"""Maximum depth of scripts within scripts that are read."""
_BEFORE = frozenset({"then", "else", "elif", "do", "!", "time"})
"""Words of the shell after which a command begins."""
_DOLLAR, _BACKQUOTE = "\0", "\1"
"""Characters that stand for a `$` and a backquote that the shell does not expand."""
LONGEST = 100_000
"""Maximum number of characters of a script that is read."""


class Command(NamedTuple):
    """A simple command of a script: a program with its arguments, without redirections."""

    words: tuple[str, ...]
    """The words without quotes, with known variables expanded. Other expansions are left as they are written."""
    loose: frozenset[int]
    """Positions of the words that may stand for several words or for none, because they are unquoted unknown expansions."""
    is_certain: bool
    """Whether the command runs exactly as it is written in every pod. False for a command in a branch or a function,
    after `||`, in a loop over values, or for a command that a loop starts in the background."""


class _Word(NamedTuple):
    text: str
    splits: bool = False
    """Whether the word contains an expansion that a shell splits at white space."""
    open: str = ""
    """The quote that begins in the word and is not closed; "" if there is none."""


class _Compound(NamedTuple):
    """A compound command that is open."""

    begin: str
    """The word that begins the command."""
    function: bool
    """Whether the command is the body of a function."""


def commands(script: str, known: Mapping[str, str], depth: int = 0) -> list[Command]:
    """Return the simple commands of a script in order, including the commands of scripts that the script passes to shells
    (`bash -c`). `known` maps the variables of the container to their known values. `depth` is the number of scripts that
    enclose this script.
    """
    if len(script) > LONGEST or depth > _NESTED:
        return []
    variables, opened, found = dict(known), list[_Compound](), list[Command]()
    words, before, skip, function = list[_Word](), "", False, False
    for part in [*_tokens(script), "\n"]:
        if isinstance(part, _Word):
            if not skip and len(words) == 1 and words[0].text == "function":
                words, function = [], True  # function NAME { … }
                continue
            words += [] if skip else [part]
            skip = False
        elif "<" in part or ">" in part:
            skip = True  # a redirection, and the word after it
        elif part == "(" and words and words[-1].text.endswith("="):
            words.append(_Word("$()", True))  # an array, whose words follow as words of a command
        elif part == "(" and len(words) == 1:
            words, function = [], True  # NAME() { … }
        else:
            for command in _flush(words, (before, part), opened, variables, function):
                # A shell inherits only the variables of the environment. It is unknown which of the new variables are
                # exported.
                inherited = {name: value for name, value in known.items() if variables.get(name) == value}
                found += [command, *_inner(command, inherited, depth)]
            function = function and not words
            words, before = [], part
    return found


def _inner(command: Command, known: Mapping[str, str], depth: int) -> Iterator[Command]:
    """Yield the commands of the script that a command passes to a shell. `known` and `depth` are parameters of
    `commands`.
    """
    shell = next((at for at, word in enumerate(command.words) if word.rpartition("/")[2] in _SHELLS), None)
    rest = command.words[shell + 1 :] if shell is not None else ()
    option = next((at for at, word in enumerate(rest) if _SCRIPT_OPTION.fullmatch(word)), None)
    if option is None or not all(word.startswith(("-", "+")) for word in rest[:option]):
        return
    script = next((word for word in rest[option + 1 :] if not word.startswith("-")), "")
    for each in commands(script, known, depth + 1) if re.search(r"\s", script) else ():
        yield each._replace(is_certain=each.is_certain and command.is_certain)


def unclosed_quote(script: str) -> str:
    """Return the first quote of a script that is not closed; "" if there is none."""
    parts = _tokens(script) if len(script) <= LONGEST else ()
    return next((part.open for part in parts if isinstance(part, _Word) and part.open), "")


def _flush(
    words: list[_Word],
    around: tuple[str, str],
    opened: list[_Compound],
    variables: MutableMapping[str, str],
    function: bool,
) -> Iterator[Command]:
    """Yield the simple command that consists of `words`, if there is one. `around` contains the operators before and after
    `words`, and `function` states whether they begin the body of a function. Update `opened`, the compound commands that are
    open, and `variables`, the known variables.
    """
    words = _after_keywords(words, opened, function)
    certain = around[0] != "||" and not any(
        each.function or each.begin in _UNSURE or (each.begin in _LOOPS and around[1] == "&") for each in opened
    )
    declares = bool(words) and words[0].text in _DECLARES
    if declares or all(_ASSIGNMENT.fullmatch(word.text) for word in words):
        _assign(words[1:] if declares else words, variables, certain)
        return
    while words and _ASSIGNMENT.fullmatch(words[0].text):
        words = words[1:]
    if words and words[0].text in _SETS:
        for word in words[1:]:
            variables.pop(word.text, None)
        return
    expanded, loose = list[str](), set[int]()
    for word in words:
        text = _expanded(word, variables)
        if word.splits and not has_unknown_value(text):
            expanded += map(_plain, text.split())
        else:
            loose |= {len(expanded)} if word.splits and text.startswith(("$", "`")) else set()
            expanded.append(_plain(text))
    if expanded:
        yield Command(tuple(expanded), frozenset(loose), certain)


def _after_keywords(words: list[_Word], opened: list[_Compound], function: bool) -> list[_Word]:
    """Return the words after those that begin or end compound commands, and update `opened`. The words of `case`, `for` and
    `select` are returned with these keywords, because they are no command.
    """
    while words:
        head = words[0].text
        if opened and head == _ENDS[opened[-1].begin]:
            opened.pop()
        elif head in _ENDS:
            opened.append(_Compound(head, function))
            if head in ("case", "for", "select"):
                break
        elif head not in _BEFORE:
            break
        words = words[1:]
    return words


def _assign(words: Iterable[_Word], variables: MutableMapping[str, str], certain: bool) -> None:
    """Update the known variables after assignments and declarations. A variable is known only if the assignment is certain
    to run, and its value is known.
    """
    for word in words:
        match = _ASSIGNMENT.fullmatch(word.text)
        value = _expanded(word._replace(text=match[3]), variables) if match and certain and not match[2] else ""
        variables.pop(match[1] if match else word.text, None)
        if match and value and not has_unknown_value(value):
            variables[match[1]] = _plain(value)


def has_unknown_value(word: str) -> bool:
    """Return whether a word contains an expansion whose value is unknown."""
    return "$" in word or "`" in word or _SUBSTITUTED.search(word) is not None


def names_in(word: str) -> frozenset[str]:
    """Return the names in the expansions of a word, such as the names of variables. The literal parts of the word are
    ignored.
    """
    at, inside = 0, list[str]()
    while at < len(word):
        if word[at] in "$`" or _SUBSTITUTED.match(word, at):
            end = _after_expansion(word, at)
            inside.append(word[at:end])
            at = end
        else:
            at += 1
    return frozenset(re.findall(r"[A-Za-z_]\w*", " ".join(inside)))


def _plain(text: str) -> str:
    return text.replace(_DOLLAR, "$").replace(_BACKQUOTE, "`")


def _expanded(word: _Word, variables: Mapping[str, str]) -> str:
    """Return the text of a word with the known variables expanded."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        known = name in variables and (variables[name] or not found[3])
        return variables[name].replace("$", _DOLLAR).replace("`", _BACKQUOTE) if known else found[0]

    return _EXPANSION.sub(value, word.text)


def _tokens(script: str) -> Iterator[_Word | str]:
    """Yield the words and the operators of a script. Comments and here-documents are left out."""
    at, text, begun, splits, opened, documents = 0, list[str](), False, False, "", list[str]()
    while at < len(script):
        here = script[at]
        if here in " \t\r" or (
            (operator := _OPERATOR.match(script, at)) is not None
            and not (operator[0][0].isdigit() and begun)
            and not _SUBSTITUTED.match(script, at)
        ):
            if begun:
                yield _Word("".join(text), splits)
            text, begun, splits = [], False, False
            if here in " \t\r":
                at += 1
                continue
            assert operator is not None
            yield operator[0]
            at = operator.end()
            if operator[0] in ("<<", "<<-"):
                end = re.compile(r"\s*['\"\\]?([^\s'\";&|<>]+)").match(script, at)
                documents += [end[1]] if end else []
            elif here == "\n" and documents:
                at = _after_documents(script, at, documents)
            continue
        if here == "#" and not begun:
            end_of_line = script.find("\n", at)
            at = len(script) if end_of_line < 0 else end_of_line
            continue
        piece, at, expands = _piece(script, at)
        opened = here if here in "'\"" and at > len(script) else ""
        text.append(piece)
        begun = begun or piece != "" or here in "'\""
        splits = splits or expands
    if begun:
        yield _Word("".join(text), splits, opened)


def _after_documents(script: str, at: int, documents: list[str]) -> int:
    """Return the position after the here-documents that end with the words in `documents`, and empty the list."""
    while documents and at < len(script):
        end = script.find("\n", at)
        line, at = script[at : end if end >= 0 else None], end + 1 if end >= 0 else len(script)
        if line.strip() == documents[0]:
            documents.pop(0)
    return at


def _piece(script: str, at: int) -> tuple[str, int, bool]:
    """Return the next piece of a word without its quotes, the position after the piece, and whether a shell splits it. The
    piece begins at the position `at`.
    """
    here = script[at]
    if here == "\\":
        return ("" if script[at + 1 : at + 2] == "\n" else _literal(script[at + 1 : at + 2])), at + 2, False
    if here == "'":
        end = script.find("'", at + 1)
        end = len(script) if end < 0 else end
        return _literal(script[at + 1 : end]), end + 1, False
    if here == '"':
        return _quoted(script, at + 1)
    if here in "$`":
        end = _after_expansion(script, at)
        return script[at:end], end, end - at > 1
    if _SUBSTITUTED.match(script, at):
        end = _after_expansion(script, at)
        return script[at:end], end, False
    return here, at + 1, False


def _literal(text: str) -> str:
    return text.replace("$", _DOLLAR).replace("`", _BACKQUOTE)


def _quoted(script: str, at: int) -> tuple[str, int, bool]:
    """Return the text in double quotes that begins at `at`, as `_piece` does."""
    out, splits = list[str](), False
    while at < len(script) and script[at] != '"':
        if script[at] == "\\" and script[at + 1 : at + 2] in ("$", "`", '"', "\\", "\n"):
            out.append(_literal(script[at + 1].strip("\n")))
            at += 2
        elif script[at] in "$`":
            end = _after_expansion(script, at)
            out.append(script[at:end])
            splits = splits or script[at:end] == "$@" or script[at:end].endswith("[@]}")
            at = end
        else:
            out.append(script[at])
            at += 1
    return "".join(out), at + 1, splits


def _after_expansion(script: str, at: int) -> int:
    """Return the position after the expansion that begins at `at` with a `$`, a backquote, or a process substitution."""
    if script[at] == "`":
        end = script.find("`", at + 1)
        return len(script) if end < 0 else end + 1
    pair = {"(": ")", "{": "}"}.get(script[at + 1 : at + 2])
    if pair is None:
        plain = re.compile(r"\$(?:[A-Za-z_]\w*|[@*#?$!\d-])?").match(script, at)
        return plain.end() if plain else at + 1
    opened, depth, position = script[at + 1], 0, at + 1
    while position < len(script):
        depth += (script[position] == opened) - (script[position] == pair)
        position += 1
        if depth == 0:
            return position
    return len(script)
