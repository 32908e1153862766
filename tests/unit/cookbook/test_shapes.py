"""Tests that the sizes of published models add up to the parameters on their model pages, and that their context lengths
equal those in config/.
"""

import json

import pytest

from ome_operator.cookbook.library import published_config
from ome_operator.core.selection.model_profile import parameter_count
from ome_operator.modelinfo.extract import CONFIG, facts
from tests.support.parts import ROOT, read_documents

NAMES = read_documents(ROOT / "ome_operator/cookbook/data/shapes.yaml")[0]
SPECS = {
    spec["storage"]["storageUri"].rpartition("/")[2]: spec
    for path in (ROOT / "config/models").rglob("*.yaml")
    for spec in [read_documents(path)[0]["spec"]]
}


@pytest.mark.parametrize("name", NAMES)
def test_published_config_has_declared_parameters_and_context(name: str) -> None:
    config = published_config(f"any/{name}")
    assert config is not None
    read = facts({CONFIG: json.dumps(config)})
    said = parameter_count(SPECS[name]["modelParameterSize"])
    assert read.parameters is not None and said is not None
    assert read.parameters == pytest.approx(said, rel=0.01)
    assert read.context_length == SPECS[name]["maxTokens"]
