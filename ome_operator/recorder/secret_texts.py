"""Find values in texts that may be secret: values after names that suggest a secret, and values in known formats.

Every function needs time proportional to the length of the text, so that a text of a tenant cannot occupy a processor. Where
a text is ambiguous, the longer possible value is treated as secret.
"""

import re
from collections.abc import Callable, Iterator

Mark = Callable[[str], str]

MARK = "redacted-"
DONE = re.compile(rf"{MARK}\d+")
_SOUNDS = re.compile(
    r"pass(?:word|wd|phrase)|secret|token(?!iz)|(?:api|access|private|signing|account|shared)[-_]?key|credential|authorization",
    re.IGNORECASE,
)
_ENDS = re.compile(r"(?:^|[-_.])(?:pass|pwd|auth|cookie|creds?)$", re.IGNORECASE)
_ENDS_IN_CAPITALS = re.compile(r"[a-z0-9](?:Pass|Pwd|Auth|Cookie|Creds?)$")
_ENDS_AS_KEY = re.compile(r"(?:^|[-_.])key$", re.IGNORECASE)
"""Pattern of names of flags, variables and query parameters that suggest a secret. A key of a map may have such a name
although its value is not secret, such as `topologyKey`."""
_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie"})
"""Headers whose value may consist of several words, such as `Token abc`."""

_OF_A_PATH = re.compile(r"(?:path|file|dir|directory)s?$", re.IGNORECASE)
_OF_A_NAME = re.compile(r"(?:names?|ref|reference|pull_?secrets)$", re.IGNORECASE)
_OF_A_SETTING = re.compile(
    r"(?:port|policy|seconds|mode|source|projection|type|limit|length|size|num|count)$", re.IGNORECASE
)
_OF_NUMBERS = re.compile(r"tokens?", re.IGNORECASE)
"""Pattern of a name that may refer to the tokens of a text, such as `--max-total-tokens`, and not to a secret token."""
_PATH = re.compile(r"(?:[.~]{0,2}|\$\w{1,128}|\$[({]\w{1,128}[)}])/[^\s=]{0,1024}")
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_SETTING = re.compile(r"[A-Za-z]{1,32}|\d{1,9}")
_NUMBERS = re.compile(r"[\d.,\s\[\]]{1,64}")
_HARMLESS = re.compile(r"true|false|none|null|\$\([A-Z_][A-Z0-9_]{0,128}\)|\$\{[A-Z_][A-Z0-9_]{0,128}\}", re.IGNORECASE)
"""Pattern of a value that is not secret, whatever its name is: a boolean, or a reference to a variable."""

_FLAG = re.compile(r"--?[A-Za-z][-\w.]*")
_ANOTHER_FLAG = re.compile(r"(?:--[a-z][a-z0-9]{0,23}(?:[-_.][a-z0-9]{1,23})*|-[A-Za-z])(?:=.*)?", re.DOTALL)
"""Pattern of a flag in a place where a value could be. A secret may also begin with `-`, but a secret has capital letters
or long parts."""
_ARGUMENT = re.compile(r"(?P<head>(?P<name>[-\w.]++)(?:=|:\s++))(?P<value>.+)", re.DOTALL)
_USER = frozenset({"-u", "--user", "--proxy-user"})
"""Flags whose value contains a password if the value contains a colon."""

_NAMED = re.compile(r"(?<![-\w.])(?P<name>[-\w.]++)(?P<gap>(?:\\*+[\"'])?+\s*+[=:]\s*+|\s++)")
"""Pattern of a name with the text that separates it from its value."""
_QUOTE = re.compile(r"(?<!\\)(?P<level>\\*+)(?P<mark>[\"'])")
_QUOTE_BEFORE = re.compile(r"(?P<level>\\{0,16})(?P<mark>[\"'])$")
_BRACKET = re.compile(r"[\[\]{}]")
_WORD = re.compile(r"[^\s\"'\\]*+")
_WORD_OF_A_QUERY = re.compile(r"[^\s\"'\\&#<>]*+")
_LINE = re.compile(r"[^\"'\n\\]*+")
_GLUED = re.compile(r"\\*+[\"'](?=[\w/+=-])[^\s\"']*+[\"']?")
"""Pattern of a quoted part that directly follows an unquoted part of the same shell word."""
_BLOCK = re.compile(r"[|>][-+]?\n(?:[ \t]++[^\n]*+\n?+|\n)*+")
"""Pattern of a block scalar (a text of several lines) in YAML."""
_TRAILING = ",;&|)]}"

_BEARER = re.compile(r"(?P<before>\b(?:bearer|basic)\s++)(?P<value>[\w.~+/=-]{6,})", re.IGNORECASE)
_URL = re.compile(r"(?P<before>(?<![a-z0-9+.-])[a-z][a-z0-9+.-]*+://)(?P<value>[^/\s\"'<>]+)(?=@)", re.IGNORECASE)
_TOKEN = re.compile(
    r"(?P<before>)(?P<value>(?:hf_|sk-|gh[pousr]_|github_pat_|glpat-|nvapi-|xox[a-z]-)[\w-]{8,}|A[KS]IA[A-Z0-9]{12,}"
    r"|(?<![\w-])eyJ[\w-]{8,}+\.[\w-]{4,}[\w.-]*)"
)
_HOOK = re.compile(r"(?P<before>\bhooks\.[\w.-]{1,100}/)(?P<value>[\w/-]{8,})|(?P<other>(?<=/webhooks/)[\w/-]{8,})")
_PEM = re.compile(
    r"(?P<before>)(?P<value>-----BEGIN [A-Z0-9 ]++-----.*?(?:-----END [A-Z0-9 ]++-----|\Z)"
    r"|\A[A-Za-z0-9+/=\s\\]*+-----END [A-Z0-9 ]++-----)",
    re.DOTALL,
)
"""Pattern of a key in PEM format. Its beginning or its end may be cut off."""
_FORMATS = (_PEM, _TOKEN, _URL, _BEARER)


def sounds_secret(name: str, *, flag: bool = False) -> bool:
    """Return whether a name suggests that its value is secret. `flag` is true for the name of a flag, a variable or a query
    parameter, and false for the key of a map.
    """
    last = name[-256:]
    found = _SOUNDS.search(name) or _ENDS.search(last) or _ENDS_IN_CAPITALS.search(last)
    return bool(found or (flag and _ENDS_AS_KEY.search(last)))


def is_harmless(name: str, value: str) -> bool:
    """Return whether a value only refers to a secret or is about something else, although its name suggests a secret.
    Examples are a path of a `token_file`, the name of a Secret, a number of tokens.
    """
    last = name[-64:]
    return any(
        form.fullmatch(value) is not None
        for names, form in (
            (_OF_A_PATH, _PATH), (_OF_A_NAME, _NAME), (_OF_A_SETTING, _SETTING), (_OF_NUMBERS, _NUMBERS), (None, _HARMLESS),
        )
        if names is None or names.search(last)
    )  # fmt: skip


def flag_of(text: str) -> str:
    """Return the flag that an argument consists of, such as `--api-key`; "" for any other argument."""
    return text if _FLAG.fullmatch(text) else ""


def value_of_flag(flag: str, value: str) -> bool:
    """Return whether an argument is the secret value of the flag before it. `flag` is "" if the argument before it is not a
    flag.
    """
    if flag in _USER:
        return ":" in value and not value.replace(":", "").isdigit()
    secret = flag and sounds_secret(flag, flag=True) and not is_harmless(flag, value)
    return bool(secret) and _ANOTHER_FLAG.fullmatch(value) is None


def split_argument(text: str) -> tuple[str, str] | None:
    """Return an argument such as `--api-key=abc`, `API_KEY=abc` or `Authorization: abc` as its name with the separator and
    its complete value; None if it has another form or is not secret.
    """
    found = _ARGUMENT.fullmatch(text)
    if found is None or not sounds_secret(found["name"], flag=True) or is_harmless(found["name"], found["value"]):
        return None
    return found["head"], found["value"]


def text_values(text: str, mark: Mark) -> str:
    """Return the text after each value that may be secret was replaced by the result of `mark(value)`."""
    for pattern in _FORMATS:
        text = pattern.sub(lambda found: found["before"] + mark(found["value"]), text)
    text = _HOOK.sub(lambda found: mark(found["other"]) if found["other"] else found["before"] + mark(found["value"]), text)
    parts, done = list[str](), 0
    for start, end in _named_values(text):
        if start >= done:
            parts += (text[done:start], mark(text[start:end]))
            done = end
    return "".join((*parts, text[done:])) if parts else text


def _named_values(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each value whose name suggests a secret."""
    done = 0
    for found in _NAMED.finditer(text):
        name, gap = found["name"], found["gap"]
        assigned = not gap.isspace()
        flag = name.startswith("-")
        user = name in _USER
        if found.start() < done or not (assigned or flag):
            continue
        if not user and not sounds_secret(name, flag=flag or "=" in gap):
            continue
        start, end, behind = _value(text, found)
        value = text[start:end]
        if DONE.fullmatch(value) or is_harmless(name, value) or ((user or not assigned) and not value_of_flag(name, value)):
            continue  # a value that is not secret is short, or begins with the name of another value, which is found next
        if value:
            yield start, end
        done = behind


def _value(text: str, found: re.Match[str]) -> tuple[int, int, int]:
    """Return the start and the end of the value after a name, and the position at which the search continues."""
    at, name = found.end(), found["name"]
    if (quote := _QUOTE.match(text, at)) is not None:
        end = _closing(text, quote.end(), quote)
        return quote.end(), end, end
    if text[at : at + 1] in ("{", "["):
        end = _closing_bracket(text, at)
        return at, end, end
    if (block := _BLOCK.match(text, at)) is not None:
        return at, block.end(), block.end()
    before = text[max(0, found.start() - 17) : found.start()]
    if "=" in found["gap"] and before.endswith(("?", "&")):
        end = _WORD_OF_A_QUERY.match(text, at).end()  # type: ignore[union-attr]  # matches every text
        return at, end, end
    if (quote := _QUOTE_BEFORE.search(before)) is not None and not _QUOTE.match(found["gap"]):
        end = _closing(text, at, quote)
        return at, end, end
    if name.lower() in _HEADERS:
        end = _LINE.match(text, at).end()  # type: ignore[union-attr]
    else:
        end = _WORD.match(text, at).end()  # type: ignore[union-attr]
        while end > at and (glued := _GLUED.match(text, end)) is not None:
            end = _WORD.match(text, glued.end()).end()  # type: ignore[union-attr]
    value = text[at:end].rstrip()
    return at, at + len(value if is_harmless(name, value) else value.rstrip(_TRAILING)), end


def _closing(text: str, at: int, opening: re.Match[str]) -> int:
    """Return the position of the quotation mark that closes the quotation mark at `opening`, or the end of the text. A mark
    with more backslashes belongs to the value.
    """
    for found in _QUOTE.finditer(text, at):
        if found["mark"] == opening["mark"] and len(found["level"]) <= len(opening["level"]):
            return found.start()
    return len(text)


def _closing_bracket(text: str, at: int) -> int:
    """Return the position after the bracket that closes the bracket at `at`, or the end of the text."""
    depth = 0
    for found in _BRACKET.finditer(text, at):
        depth += 1 if found[0] in "[{" else -1
        if depth == 0:
            return found.end()
    return len(text)
