"""The requirements of SGLang on combinations of flags, beyond the requirements that SGLang's parser checks
(data/requirements.yaml).
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from ome_operator.util import package_data
from ome_operator.util.kubeyaml import document

ON, OFF, GIVEN, ABSENT = "on", "off", "given", "absent"
ONE_OF, NONE_OF, AT_LEAST, AT_MOST, ABOVE = "one of", "none of", "at least", "at most", "above"
EQUALS, OTHER_THAN = "equals", "other than"
_WITH_WORDS = (ONE_OF, NONE_OF, AT_LEAST, AT_MOST, ABOVE, EQUALS, OTHER_THAN)
_OR_ABSENT = "absent or "
PREFILL, DECODE, LORA, ARCHITECTURE = "prefill attention", "decode attention", "LoRA", "architecture"
"""Names of conditions that depend on several flags, or on the model."""
ATTENTION: Mapping[str, str] = {PREFILL: "--prefill-attention-backend", DECODE: "--decode-attention-backend"}
"""Maps each name of an attention backend to the flag that sets this backend alone; --attention-backend sets both
backends."""
VERSION = "0.5.23"
"""The version of SGLang whose checks the file lists."""


class Condition(NamedTuple):
    """A condition about a flag or a size."""

    kind: str
    """One of the constants of this module, such as ON or AT_LEAST."""
    words: tuple[str, ...] = ()
    """The values, the number or the name to which the flag or size is compared."""
    or_absent: bool = False
    """Whether the condition also holds if the flag is not given."""


class Requirement(NamedTuple):
    """A check of SGLang: if all conditions in `when` hold, all conditions in `needs` must hold; otherwise SGLang exits."""

    when: Mapping[str, Condition]
    """Maps a flag or size to its condition. If the map is empty, the check applies to each flag of `needs` that is given."""
    needs: Mapping[str, Condition]
    source: str
    """File and function of the check, below sglang/srt/arg_groups."""


@cache
def requirements() -> tuple[Requirement, ...]:
    """Return all checks of SGLang that the data file lists, in the order of the file."""
    text = package_data.text(__package__, "requirements.yaml")
    return tuple(
        Requirement(dict(_conditions(row.get("when", {}))), dict(_conditions(row["needs"])), row["source"])
        for row in document(text)
    )


def _conditions(written: Mapping[str, str | bool]) -> Iterator[tuple[str, Condition]]:
    for name, text in written.items():
        yield name, condition((ON if text else OFF) if isinstance(text, bool) else text)


def condition(text: str) -> Condition:
    """Parse a condition. Raises ValueError for a text that is not a condition."""
    bare = text.removeprefix(_OR_ABSENT)
    if bare in (ON, OFF, GIVEN, ABSENT):
        return Condition(bare)
    kind = next((kind for kind in _WITH_WORDS if bare.startswith(f"{kind} ")), None)
    if kind is None:
        raise ValueError(f"{text} is no condition")
    return Condition(kind, tuple(bare.removeprefix(kind).split()), bare != text)
