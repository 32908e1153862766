"""Tests that the older form of a service is migrated to the present form."""

from typing import Any

import pytest

from ome_operator.api import ServiceSpec, migrate


def migrated(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the migrated form of a spec."""
    return migrate(ServiceSpec.read(spec)).dump()


def test_migration_moves_predictor_fields() -> None:
    """Model, runtime, scaling, pod and workers of a `predictor` are moved to their present fields."""
    assert migrated(
        {
            "predictor": {
                "minReplicas": 1,
                "maxReplicas": 2,
                "labels": {"a": "b"},
                "nodeSelector": {"gpu": "h200"},
                "model": {"baseModel": "m", "runtime": "r", "fineTunedWeights": ["w"]},
                "workerSpec": {"size": 3, "runner": {"name": "x"}, "tolerations": []},
            },
            "kedaConfig": {"enableKeda": True},
        }
    ) == {
        "model": {"name": "m", "fineTunedWeights": ["w"]},
        "runtime": {"name": "r", "kind": "ClusterServingRuntime", "apiGroup": "ome.io"},
        "engine": {
            "minReplicas": 1,
            "maxReplicas": 2,
            "labels": {"a": "b"},
            "nodeSelector": {"gpu": "h200"},
            "worker": {"size": 3, "runner": {"name": "x"}, "tolerations": []},
        },
        "kedaConfig": {"enableKeda": True},
    }


ONE, TWO = {"name": "sidecar", "image": "s"}, {"name": "ome-container", "image": "e", "env": [{"name": "A", "value": "1"}]}
CASES = [
    ("the container named after OME is the runner", {"containers": [ONE, TWO]}, {"runner": TWO, "containers": [ONE]}),
    ("else the first", {"containers": [ONE, {"name": "b"}]}, {"runner": ONE, "containers": [{"name": "b"}]}),
    ("an only container leaves no others", {"containers": [ONE]}, {"runner": ONE}),
    (
        "the model's variables come after the container's",
        {"containers": [TWO], "model": {"env": [{"name": "B", "value": "2"}], "storageUri": "hf://a/b"}},
        {
            "runner": TWO
            | {
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "value": "2"},
                    {"name": "STORAGE_URI", "value": "hf://a/b"},
                ]
            }
        },
    ),
    (
        "without containers the model's own fields are the runner",
        {"model": {"args": ["--x"], "protocolVersion": "openAI"}},
        {"runner": {"name": "ome-container", "args": ["--x"], "env": [{"name": "PROTOCOL_VERSION", "value": "openAI"}]}},
    ),
    ("a model that only refers makes no runner", {"model": {"baseModel": "m"}}, {}),
]


@pytest.mark.parametrize(("predictor", "engine"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_migration_turns_main_container_into_runner(predictor: dict[str, Any], engine: dict[str, Any]) -> None:
    """The migration of `predictor` chooses the main container, which becomes the runner, and gives it the settings of the
    predictor's model.
    """
    assert migrated({"predictor": predictor})["engine"] == engine


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"model": {"name": "m"}, "engine": {}},
        {"predictor": {}},
        {"predictor": {"minReplicas": 1}, "engine": {"minReplicas": 2}},
        {"predictor": {"model": {"baseModel": "old"}}, "model": {"name": "new"}},
    ],
)
def test_specs_without_an_older_form_are_not_migrated(spec: dict[str, Any]) -> None:
    """A spec stays unchanged if it has no older form, an empty older form, or already the present form."""
    assert migrated(spec) == spec


def test_second_migration_changes_nothing() -> None:
    """A second migration changes nothing."""
    once = migrate(ServiceSpec.read({"predictor": {"model": {"baseModel": "m"}}}))
    assert migrate(once) is once
