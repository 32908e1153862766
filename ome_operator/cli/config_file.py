"""Read the file of `ome operator --config`, which is YAML. Its keys are the flags without the leading dashes.

The keys are derived from the flags and not from the chart values, because every option has exactly one flag, so that
`--help`, this file and error messages use the same name for an option. Some chart values set several options, and some
options have no chart value.
"""

import difflib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ome_operator.cli.file_errors import why_unreadable
from ome_operator.errors import InvalidOption
from ome_operator.settings.option import Declared, Form
from ome_operator.util import kubeyaml

_MOST = 2**20
"""Maximum number of characters in a file. A file that sets every option has less than ten thousand."""


def read_config_file(path: Path, options: Mapping[str, Declared]) -> dict[str, Any]:
    """Return the values of the file by key, in the form in which the flags accept them.

    `options` maps the key of every option to its declaration. Raises InvalidOption for an invalid file; the message names
    the file, the key and the fix.
    """
    text = _text(path)
    try:
        found = kubeyaml.document(text)
        twice = _twice(text)
    except yaml.YAMLError as error:
        raise InvalidOption(f"{path} cannot be read as YAML: {error}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InvalidOption(f"{path} is {_shown(found)}: write a map of options, such as gang-timeout: 60.")
    if twice:
        raise InvalidOption(f"{path}: {twice} is written more than once: keep one of them.")
    return {key: _value(f"{path}: {key}", _known(path, key, options), value) for key, value in found.items()}


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_MOST + 1)
    except (OSError, ValueError) as error:
        raise InvalidOption(
            f"--config {path} cannot be read: {why_unreadable(error)}. Correct the path, or make the file readable."
        ) from error
    if len(text) > _MOST:
        raise InvalidOption(f"{path} has more than {_MOST} characters: write only options of `ome operator` there.")
    return text


def _twice(text: str) -> str:
    """Return a top-level key that occurs more than once in the YAML text; "" if no key does. The parser would silently use
    the last value of such a key.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    keys = [str(key.value) for key, _ in root.value] if isinstance(root, yaml.MappingNode) else []
    return next((key for key, times in Counter(keys).items() if times > 1), "")


def _known(path: Path, key: Any, options: Mapping[str, Declared]) -> Declared:
    if (declared := options.get(key) if isinstance(key, str) else None) is not None:
        return declared
    word = str(key).strip("-").replace("_", "-").lower()
    if (positive := word.removeprefix("no-")) in options and positive != word:
        raise InvalidOption(f"{path}: {key} is not an option: write {positive}: false.")
    close = difflib.get_close_matches(word, list(options), n=1)
    fix = f"write {close[0]}" if close else "`ome operator --help` lists all options; write them without the dashes"
    raise InvalidOption(f"{path}: {str(key)[:60]} is not an option: {fix}.")


def _value(where: str, declared: Declared, value: Any) -> Any:
    """Return `value`, the value of an option in the file, in the form in which the flag accepts it. Raises InvalidOption if
    the value has a wrong type or is out of bounds. `where` names the file and the key in the message.
    """
    if declared.form is Form.STEPS and isinstance(value, list) and all(_is_text(item) or _is_whole(item) for item in value):
        return ",".join(map(str, value))
    if not _fits(declared, value):
        raise InvalidOption(f"{where} is {_shown(value)}: {declared.fix}")
    return value


def _fits(declared: Declared, value: Any) -> bool:
    """Return whether a value has the type of the option and is within its bounds."""
    option = declared.option
    match declared.form:
        case Form.SWITCH:
            return isinstance(value, bool)
        case Form.LIST:
            return isinstance(value, list) and all(map(_is_text, value))
        case Form.WHOLE | Form.NUMBER:
            is_number = _is_whole(value) or (declared.form is Form.NUMBER and isinstance(value, float))
            return is_number and declared.permits(value)
        case _:
            return _is_text(value) and (not option.choices or declared.chosen(value) is not None)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    """Return a value as JSON for a message, shortened to 60 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:59] + "…"
