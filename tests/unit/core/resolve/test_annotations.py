"""Tests that every annotation in `ome_operator/keys.py` is known to the check for annotations without effect. A new name
fails the test until it is listed either as one that the operator reads from users' objects, or here.
"""

import re
from dataclasses import replace

from ome_operator import keys
from ome_operator.core.resolve.ignored_fields import OMES, ignored_field_messages
from ome_operator.core.resolve.no_effect import READ, READ_ON_PODS, READ_WHERE_EXPOSED
from tests.support import parts

NOT_FOR_USERS = {
    "MANAGED_BY", "SERVICE", "REVISION", "GROUP_INDEX", "BENCHMARK", "ANSWERED_BY", "LEASE_CLASS", "PREFLIGHT_RUN",
    "HASH", "DRAINING", "EXCLUDED_NODES", "SCALE_DOWN_MARK", "WAKE_GENERATION", "GENERATION", "IMAGE_PULL",
}  # fmt: skip
"""Labels and annotations on objects that the operator or a command creates."""
ON_OTHERS = {"FORGIVEN": "NodeFaults", "OPERATOR_CLASS": "a label of all kinds"}
"""Names that people write on objects whose annotations are not checked, or as labels."""
TYPES_OF_SECRETS = {"SSH_SECRET", "ROUTER_KEY_SECRET"}


def names() -> dict[str, str]:
    """Return the constants that are full names in OME's domains."""
    found = {name: value for name, value in vars(keys).items() if name.isupper() and isinstance(value, str)}
    versions = {"API_VERSION", "MODEL_LABEL_PREFIX", "PREFLIGHT_LABEL"}
    return {name: value for name, value in found.items() if OMES.match(value) and name not in versions}


def test_every_annotation_key_is_known_to_the_check_or_not_for_users() -> None:
    read = frozenset().union(*READ.values(), *READ_ON_PODS.values(), READ_WHERE_EXPOSED)
    unknown = {name for name, value in names().items() if value not in read}
    assert unknown == NOT_FOR_USERS | ON_OTHERS.keys()
    assert {name for name in TYPES_OF_SECRETS if names()[name] in read} == TYPES_OF_SECRETS


def test_annotations_written_by_commands_are_not_reported() -> None:
    sources = "".join(path.read_text() for path in (parts.ROOT / "ome_operator/cli").rglob("*.py"))
    written = set(re.findall(r'"annotations": \{keys\.([A-Z_]+)', sources))
    assert {"MOVE", "RETRY", "FREEZE"} <= written
    for name in written - ON_OTHERS.keys():
        service = replace(parts.service(), annotations={names()[name]: "engine/0 2026-11-28T03:00:00Z"})
        assert ignored_field_messages(service) == ()
