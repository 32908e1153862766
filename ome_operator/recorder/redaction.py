"""Replace values in a recording that may be secret. Equal values are replaced by the same placeholder everywhere in a
file, so that a decision that depends on equality can still be replayed.

The following values are redacted: the values of all variables that the operator does not set; values whose name suggests a
secret, in maps, arguments, commands, headers and other texts (`secret_texts.py`); and tokens in known formats. If such a
value is long enough, its lines, its base64 text and what it encodes are also replaced at all other places, such as in the
last output of a container.

The time is proportional to the length of the texts, because tenants write them.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ome_operator.recorder import secret_texts
from ome_operator.recorder.secret_texts import DONE, MARK, is_harmless, sounds_secret

LONG = 8
"""Minimum number of characters of a secret value that is replaced everywhere in the file. A shorter value may be an
ordinary word at other places."""
OURS = frozenset(
    {
        "HUGE_PAGES", "INFERENCESERVICE_NAME", "LWS_GROUP_INDEX", "LWS_GROUP_SIZE", "LWS_LEADER_ADDRESS", "LWS_WORKER_INDEX",
        "MODEL_PATH", "NAMESPACE", "PARALLELISM_SIZE", "POD_IP", "POD_NAME",
    }
)  # fmt: skip
"""Environment variables that the operator sets. If one of them has a value that the operator cannot have set, the value
is redacted."""
_OWN_NAMES = OURS - {"HUGE_PAGES", "LWS_GROUP_INDEX", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX", "PARALLELISM_SIZE", "MODEL_PATH"}
_NUMBER = re.compile(r"\d{1,7}")
_PATH = re.compile(r"/[\w./-]{0,1024}")
_REFERENCES = re.compile(r"[\w.-]*\$\([A-Z_]{1,64}\)[\w.-]*")
_ARGUMENTS = frozenset({"args", "command"})
"""Fields whose items are the arguments of a program."""
_SCRIPT = re.compile(r"-[a-z]{0,8}c")
"""A flag of a shell, after which the next argument is a script."""
_PIECE = re.compile(r"[^\s\"'&;,|<>(){}\[\]]+")


class Redaction:
    """The placeholders of one file. Call `collect_values` for all values before you call `replace_values`, because a value
    may occur before the place where it is recognized as secret.

    `names` (of objects, nodes and labels) are not secret, wherever they occur.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(names)
        self._marks: dict[str, str] = {}
        self._words: dict[str, list[str]] = {}
        """Maps the first LONG characters of words to the words that begin with them, the longest first."""
        self._texts: dict[str, str] = {}
        """Maps each text to the text without the values that are recognized in it."""

    def __len__(self) -> int:
        return len(self._marks)

    def collect_values(self, value: Any) -> None:
        """Collect the values that must be replaced."""
        self._walk(value, "", lambda text: text)
        words = {word for secret in list(self._marks) for word in _forms(secret) if len(word) >= LONG}
        all_names = "\n".join(self._names)
        for word in sorted(words, key=lambda word: (-len(word), word)):
            if word not in all_names:
                self._words.setdefault(word[:LONG], []).append(word)

    def replace_values(self, value: Any) -> Any:
        """Return the value in which placeholders replace the collected values."""
        known: dict[str, str] = {}

        def elsewhere(text: str) -> str:
            if text not in known:
                known[text] = self._elsewhere(text)
            return known[text]

        return self._walk(value, "", elsewhere)

    def _elsewhere(self, text: str) -> str:
        """Return the text with placeholders for the words that `collect_values` has collected."""
        if not self._words:
            return text
        parts, done, position = list[str](), 0, 0
        while position <= len(text) - LONG:
            candidates = self._words.get(text[position : position + LONG], ())
            word = next((word for word in candidates if text.startswith(word, position)), "")
            if word:
                parts += (text[done:position], self._mark(word))
                done = position + len(word)
            position = done if word else position + 1
        return "".join((*parts, text[done:])) if parts else text

    def _walk(self, value: Any, name: str, elsewhere: Callable[[str], str], below: bool = False) -> Any:
        """Return a copy of the value in which each secret is replaced. `name` is the key of the value in its map. `below`
        states whether the key of an enclosing map suggests a secret. `elsewhere` maps every remaining text to its
        replacement.
        """
        if isinstance(value, Mapping):
            out = {
                key: self._walk(inner, str(key), elsewhere, below or _holds(str(key), inner)) for key, inner in value.items()
            }
            variable, content = value.get("name"), value.get("value")
            if isinstance(variable, str) and isinstance(content, str) and not self._ours(variable, content):
                out["value"] = self._mark(content)  # a variable, a header, a parameter
            return out
        if isinstance(value, list | tuple):
            before = ["", *value]
            return [self._item(inner, name, before[number], elsewhere, below) for number, inner in enumerate(value)]
        if not isinstance(value, str):
            return value
        if (below or sounds_secret(name)) and not is_harmless(name, value):
            return self._mark(value)
        if value not in self._texts:
            self._texts[value] = secret_texts.text_values(value, self._mark)
        return elsewhere(self._texts[value])

    def _item(self, value: Any, name: str, before: Any, elsewhere: Callable[[str], str], below: bool) -> Any:
        """Return a redacted item of a list. If the previous item, `before`, is a flag, `value` may be the value of this
        flag. The other parameters are those of `_walk`.
        """
        if not isinstance(value, str) or not isinstance(before, str) or below:
            return self._walk(value, name, elsewhere, below)
        if secret_texts.value_of_flag(secret_texts.flag_of(before), value):
            return self._mark(value)
        if (
            name in _ARGUMENTS
            and not _SCRIPT.fullmatch(before)
            and (found := secret_texts.split_argument(value)) is not None
        ):
            return found[0] + self._mark(found[1])
        return self._walk(value, name, elsewhere)

    def _ours(self, name: str, value: str) -> bool:
        """Return whether the operator may have set a variable to this value: a name in the cluster, an address that
        consists of such names, a path, a number, or references to variables. A user may set a variable of the same name
        to another value.
        """
        if name not in OURS:
            return False
        if name == "MODEL_PATH":
            return _PATH.fullmatch(value) is not None
        if name not in _OWN_NAMES:
            return _NUMBER.fullmatch(value) is not None
        first, _dot, others = value.partition(".")
        known = first in self._names or _REFERENCES.fullmatch(first) is not None
        return known and all(part.removesuffix("-pods") in self._names for part in others.split(".") if part)

    def _mark(self, value: str) -> str:
        if not value or DONE.fullmatch(value):
            return value
        return self._marks.setdefault(value, f"{MARK}{len(self._marks) + 1}")


def redact_passes(service: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of a service's passes without values that may be secret. `service` is what `recording.passes_as_json`
    returns.
    """
    redaction = Redaction(service["names"])
    redaction.collect_values(service["passes"])
    return {"redacted": len(redaction), "passes": redaction.replace_values(service["passes"])}


def _holds(key: str, value: Any) -> bool:
    """Return whether the key of a map or list suggests that all values in it are secret. The result is False for a volume
    from a Secret or a ServiceAccount's token: the volume's fields contain only names and paths.
    """
    if not isinstance(value, Mapping | list | tuple) or not sounds_secret(key) or is_harmless(key, "a"):
        return False
    volume = isinstance(value, Mapping) and (
        key == "serviceAccountToken" or (key == "secret" and not value.keys().isdisjoint({"secretName", "name"}))
    )
    return not volume


def _forms(secret: str) -> Iterator[str]:
    """Yield the texts in which a secret may occur elsewhere: the value, its lines, its parts that contain letters and
    digits, its base64 text, and the text that it encodes.
    """
    yield secret
    yield from (line.strip() for line in secret.splitlines())
    for piece in _PIECE.findall(secret):
        if any(map(str.isdigit, piece)) and any(map(str.isalpha, piece)):
            yield piece
    data = secret.encode("utf-8", "surrogatepass")
    for encoded in (base64.b64encode(data), base64.b64encode(data + b"\n"), base64.urlsafe_b64encode(data)):
        yield encoded.decode().rstrip("=")
    try:
        decoded = base64.b64decode(secret, validate=True).decode()
    except (binascii.Error, ValueError):
        return
    yield from (decoded.strip(), *(line.strip() for line in decoded.splitlines()))
