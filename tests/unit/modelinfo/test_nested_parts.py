"""Tests of numbers that a config.json states in a nested part."""

import json

from ome_operator.api.learned import Experts, Facts
from ome_operator.modelinfo.extract import CONFIG, facts


def dbrx(**nested: int) -> Facts:
    """Return the facts of a config in the form of DBRX, with these fields in ffn_config."""
    config = {"model_type": "dbrx", "n_layers": 40, "ffn_config": {"ffn_hidden_size": 10752, **nested}}
    return facts({CONFIG: json.dumps(config)})


def unread(found: Facts) -> list[str]:
    return [why for why in found.unknown or () if why.startswith("experts: ")]


def test_experts_in_a_nested_config_are_read_or_reported_missing() -> None:
    """A number of experts in a nested part of config.json is read, and one that is missing there is reported. Sizes in a
    nested part alone do not mean that the model has experts.
    """
    found = dbrx(moe_num_experts=16, moe_top_k=4)
    assert found.experts == Experts(routed=16, shared=0, per_token=4, layers=40) and unread(found) == []
    assert unread(dbrx(moe_num_experts=16)) == [
        "experts: config.json does not state the number of experts per token in a known field"
    ]
    assert unread(dbrx()) == []
