"""Tests without an API server that every known field of OME's YAML files is accepted by the schemas under strict validation,
and by `parse`.
"""

from typing import Any

import pytest

from ome_operator import api
from ome_operator.api import schema
from ome_operator.api.kinds import Kind
from tests.unit.api import known, walker

PARSED: dict[str, type[api.Object[Any]]] = {
    name: one
    for one in (
        api.AcceleratorClass,
        api.BenchmarkJob,
        api.FineTunedWeight,
        api.InferenceService,
        api.Model,
        api.RoleScale,
        api.NodeFaults,
        api.NodeModels,
        api.Runtime,
    )
    for name in one.KINDS
}
EACH = pytest.mark.parametrize("kind", list(known.kinds()), ids=lambda kind: kind.kind)
VARIANT = pytest.mark.parametrize("leave_out", known.VARIANTS)


def refused(kind: Kind, body: dict[str, Any]) -> list[str]:
    """Return the errors of strict validation for the object."""
    spec = walker.errors(body["spec"], schema.structural(kind.spec), "spec")
    return [*spec, *walker.errors(body.get("status", {}), schema.structural(kind.status), "status")]


def test_list_of_known_fields_has_expected_size() -> None:
    """The list of known fields has exactly the expected number of kinds and fields, so that none can be removed from it by
    accident.
    """
    assert len(list(known.kinds())) == len(known.FIELDS) == 8
    assert sum(1 for _ in known.paths(known.FIELDS)) == 754


@EACH
@VARIANT
def test_object_with_every_known_field_passes_strict_validation(kind: Kind, leave_out: str) -> None:
    """In an object with every known field, strict validation finds no unknown field, no wrong type and no value out of
    bounds, in spec and status.
    """
    assert refused(kind, known.sample(kind, leave_out)) == []


@EACH
@VARIANT
def test_object_with_every_known_field_is_parsed_and_written_back(kind: Kind, leave_out: str) -> None:
    """An object with every known field is parsed, and is written back exactly as it was."""
    body = known.sample(kind, leave_out)
    parsed = PARSED[kind.kind].parse(body)
    assert not isinstance(parsed, api.Invalid), parsed
    assert parsed.dump()["spec"] == body["spec"]
    assert kind.status.read(body.get("status", {})).dump() == body.get("status", {})


@EACH
def test_misspelled_field_is_reported_by_strict_validation(kind: Kind) -> None:
    """Strict validation reports a misspelled field. If it did not, the tests above would prove nothing."""
    body = known.sample(kind, "maxUnavailable")
    body["spec"]["mispelled"] = 1
    assert refused(kind, body) == ["spec.mispelled: unknown"]
