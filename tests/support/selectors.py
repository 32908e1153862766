"""Label selectors in the API's notation, as far as the operator uses them."""

import re
from collections.abc import Mapping

_SET = re.compile(r"^(\S+) (in|notin) \(([^)]*)\)$")


def matches(selector: str, labels: Mapping[str, str]) -> bool:
    """Return whether labels meet every requirement of a selector such as `a=b,c!=d,e in (f,g)`."""
    return all(_meets(one, labels) for one in re.split(r",(?![^(]*\))", selector) if one)


def _meets(requirement: str, labels: Mapping[str, str]) -> bool:
    if found := _SET.match(requirement):
        key, word, values = found.groups()
        return (labels.get(key) in values.split(",")) == (word == "in")
    if "!=" in requirement:
        key, value = requirement.split("!=")
        return labels.get(key) != value
    key, value = requirement.split("=")
    return labels.get(key) == value
