"""The file of `ome operator --config`: YAML whose keys are the flags without their dashes.

The keys are those of the flags, and not the paths of the chart's values, because every option has exactly one flag:
`--help`, this file and every refusal use the same name for it. Some chart values set several options, and some options have
no chart value.
"""

import difflib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ome_operator.errors import UserError
from ome_operator.settings.option import Declared, Form
from ome_operator.util import kubeyaml

_MOST = 2**20
"""Characters of a file; one with every option has less than ten thousand."""
_LARGEST = 2**53


def read(path: Path, options: Mapping[str, Declared]) -> dict[str, Any]:
    """Return the values of the file by their keys, each as its flag takes it. Raises UserError with file, key and fix.

    `options`: every option by its key.
    """
    text = _text(path)
    try:
        found = kubeyaml.document(text)
        twice = _twice(text)
    except yaml.YAMLError as error:
        raise UserError(f"{path} cannot be read as YAML: {error}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise UserError(f"{path} is {_shown(found)}: write a map of options, such as gang-timeout: 60.")
    if twice:
        raise UserError(f"{path}: {twice} is written more than once: keep one of them.")
    return {key: _value(f"{path}: {key}", _known(path, key, options), value) for key, value in found.items()}


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_MOST + 1)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}. --config names another file.") from error
    if len(text) > _MOST:
        raise UserError(f"{path} has more than {_MOST} characters: write only options of `ome operator` there.")
    return text


def _twice(text: str) -> str:
    """Return a key that a map in lines has more than once; YAML would keep the last silently."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    keys = [str(key.value) for key, _ in root.value] if isinstance(root, yaml.MappingNode) else []
    return next((key for key, times in Counter(keys).items() if times > 1), "")


def _known(path: Path, key: Any, options: Mapping[str, Declared]) -> Declared:
    if (declared := options.get(key) if isinstance(key, str) else None) is not None:
        return declared
    word = str(key).strip("-").replace("_", "-").lower()
    if (positive := word.removeprefix("no-")) in options and positive != word:
        raise UserError(f"{path}: {key} is no option: write {positive}: false.")
    close = difflib.get_close_matches(word, list(options), n=1)
    fix = f"write {close[0]}" if close else "`ome operator --help` lists all, without the dashes"
    raise UserError(f"{path}: {str(key)[:60]} is no option: {fix}.")


def _value(where: str, declared: Declared, value: Any) -> Any:
    """Return a value as the flag takes it. Raises UserError where it has another type, or is out of bounds."""
    if declared.form is Form.STEPS and isinstance(value, list) and all(_is_text(item) or _is_whole(item) for item in value):
        return ",".join(map(str, value))
    if not _fits(declared, value):
        raise UserError(f"{where} is {_shown(value)}: {declared.fix}")
    return value


def _fits(declared: Declared, value: Any) -> bool:
    """Whether a value has the type of the option, and lies within its bounds."""
    option = declared.option
    match declared.form:
        case Form.SWITCH:
            return isinstance(value, bool)
        case Form.LIST:
            return isinstance(value, list) and all(map(_is_text, value))
        case Form.WHOLE | Form.NUMBER:
            if not _is_whole(value) and not (declared.form is Form.NUMBER and isinstance(value, float)):
                return False
            least = -_LARGEST if option.ge is None else option.ge
            return bool(least <= value <= (_LARGEST if option.le is None else option.le))
        case _:
            return _is_text(value) and (not option.choices or declared.chosen(value) is not None)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    """Return a value for a sentence, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:59] + "…"
