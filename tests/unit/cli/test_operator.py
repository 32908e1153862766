"""Options of `ome operator` that are refused before anything begins."""

import pytest

from ome_operator.cli.operator import exposed, operator
from ome_operator.errors import UserError


@pytest.mark.parametrize(
    ("kind", "gateway", "said"),
    [
        ("Gateway", "", "write Ingress or HTTPRoute"),
        ("HTTPRoute", "", "needs --gateway"),
        ("HTTPRoute", "edge", "NAMESPACE/NAME"),
    ],
)
def test_what_leads_to_services_is_named_in_full(kind: str, gateway: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        exposed(kind, gateway)


@pytest.mark.parametrize(("kind", "gateway"), [("", ""), ("Ingress", ""), ("HTTPRoute", "infra/edge")])
def test_what_is_right_is_taken(kind: str, gateway: str) -> None:
    assert exposed(kind, gateway) == kind


def test_facts_that_cannot_be_read_are_said_at_once() -> None:
    with pytest.raises(UserError, match="--well-known-models: well-known models at /nowhere cannot be read"):
        operator(well_known_models="/nowhere")
