"""Replace values in a recording that may be secret. Equal values are replaced by the same placeholder everywhere in a
file, so that a decision that depends on equality can still be replayed.

Redacted are: the values of all variables that the operator does not set; values whose name suggests a secret, also in
arguments and commands; passwords in URLs; and tokens in known formats. If such a value is long enough, it is also replaced
at all other places, such as in the last output of a container.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

MARK = "redacted-"
LONG = 8
"""Minimum number of characters of a secret value that is replaced everywhere in the file. A shorter value may be an
ordinary word at other places."""
OURS = frozenset(
    {
        "HUGE_PAGES", "INFERENCESERVICE_NAME", "LWS_GROUP_INDEX", "LWS_GROUP_SIZE", "LWS_LEADER_ADDRESS", "LWS_WORKER_INDEX",
        "MODEL_PATH", "NAMESPACE", "PARALLELISM_SIZE", "POD_IP", "POD_NAME",
    }
)  # fmt: skip
"""Environment variables whose values the operator sets, so that the values are not secret."""
_WORD = r"(?:pass(?:word|wd|phrase)|secret|token(?!s|iz)|(?:api|access|private|signing)[-_]?key|credential|authorization)"
_SOUNDS = re.compile(_WORD, re.IGNORECASE)
_REFERENCE = re.compile(
    r"(?:name|names|ref|path|paths|file|port|policy|seconds|mode|source|projection|pull_?secrets)$", re.IGNORECASE
)
"""Pattern of the ends of field names whose values only refer to a secret."""
_FLAG = re.compile(rf"--?[-\w]*{_WORD}[-\w]*", re.IGNORECASE)
_IN_TEXT = re.compile(
    rf"(?P<before>[-\w]*{_WORD}[-\w]*[\"']?\s*[=:]\s*[\"']?|--[-\w]*{_WORD}[-\w]*\s+)(?P<value>[^\s\"'&;,]+)", re.IGNORECASE
)
_BEARER = re.compile(r"(?P<before>\b(?:bearer|basic)\s+)(?P<value>[\w.~+/=-]{6,})", re.IGNORECASE)
_URL = re.compile(r"(?P<before>[a-z][a-z0-9+.-]*://)(?P<value>[^/@\s]+)(?=@)")
_QUERY = re.compile(rf"(?P<before>[?&][^=\s&]*(?:{_WORD}|sig(?:nature)?)[^=\s&]*=)(?P<value>[^&\s]+)", re.IGNORECASE)
_TOKEN = re.compile(
    r"(?P<before>)(?P<value>(?:hf_|sk-|gh[pousr]_|glpat-|nvapi-|xox[a-z]-)[\w-]{8,}|AKIA[A-Z0-9]{12,}"
    r"|eyJ[\w-]{8,}\.[\w-]{4,}[\w.-]*|-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----)",
    re.DOTALL,
)
_PATTERNS = (_TOKEN, _URL, _QUERY, _BEARER, _IN_TEXT)
_DONE = re.compile(rf"{MARK}\d+")


class Redaction:
    """The placeholders of one file. Call `find` for all values first, because a value may occur before the place where it
    is recognized as secret; then call `replaced`.

    `names` (of objects, nodes and labels) are not secret, wherever they occur.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = "\n".join(names)
        self._marks: dict[str, str] = {}
        self._elsewhere: re.Pattern[str] | None = None

    def __len__(self) -> int:
        return len(self._marks)

    def find(self, value: Any) -> None:
        """Collect the values that must be replaced."""
        self._walk(value, "", lambda text: text)
        words = (word for word in self._marks if len(word) >= LONG and word not in self._names)
        self._elsewhere = re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))) or r"(?!)")

    def replaced(self, value: Any) -> Any:
        """Return the value in which placeholders replace the collected values."""
        pattern = self._elsewhere or re.compile(r"(?!)")
        return self._walk(value, "", lambda text: pattern.sub(lambda match: self._mark(match[0]), text))

    def _walk(self, value: Any, name: str, elsewhere: Callable[[str], str]) -> Any:
        if isinstance(value, Mapping):
            out = {key: self._walk(inner, str(key), elsewhere) for key, inner in value.items()}
            if isinstance(value.get("value"), str) and isinstance(value.get("name"), str) and value["name"] not in OURS:
                out["value"] = self._mark(value["value"])  # a variable, a header, a parameter
            return out
        if isinstance(value, list | tuple):
            before = ["", *value]
            return [self._item(inner, name, before[number], elsewhere) for number, inner in enumerate(value)]
        if not isinstance(value, str):
            return value
        if _secret(name):
            return self._mark(value)
        for pattern in _PATTERNS:
            value = pattern.sub(lambda match: match["before"] + self._mark(match["value"]), value)
        return elsewhere(value)

    def _item(self, value: Any, name: str, before: Any, elsewhere: Callable[[str], str]) -> Any:
        """Return a redacted item of a list. `before` is the previous item: if it is a flag, `value` is the value of the
        flag.
        """
        if isinstance(before, str) and isinstance(value, str) and _FLAG.fullmatch(before) and not value.startswith("-"):
            return self._mark(value) if _secret(before) else self._walk(value, name, elsewhere)
        return self._walk(value, name, elsewhere)

    def _mark(self, value: str) -> str:
        if not value or _DONE.fullmatch(value):
            return value
        return self._marks.setdefault(value, f"{MARK}{len(self._marks) + 1}")


def _secret(name: str) -> bool:
    return bool(_SOUNDS.search(name)) and not _REFERENCE.search(name)
